//! A question in Cedar's terms, all but its arguments.

use std::sync::Arc;

use cedar_policy::{Context, Entities, Request, RestrictedExpression};

use super::{
    Decision, Delegation, Question, agents, asked,
    entities::Triple,
    index::{Index, Slice},
    input::Lifted,
    store::Policies,
    varying::Varying,
    vocabulary::Action,
    web,
};
use crate::protocol::{Class, Era, Protocol, Target};

impl Policies {
    /// A question in Cedar's terms, and the policies whose scope fits it.
    pub(super) fn scene(
        &self,
        question: &Question<'_>,
        index: &Index,
    ) -> Result<(Scene, Arc<Slice>), Refusal> {
        let place = self.place(question, index)?;
        self.stage(question, place)
    }

    pub(super) fn place(&self, question: &Question<'_>, index: &Index) -> Result<Place, Refusal> {
        let &Question { principal, server, method, target, .. } = question;
        if server.contains('/') {
            // Ids are `server/name`; a slash in the first part would make two pairs one.
            return Err(Refusal(format!("the name of server `{server}` has a slash")));
        }
        let class = match target {
            Target::Tool(tool) => self.world.tool_class(server, tool),
            Target::Server
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Template(_)
            | Target::Task(_)
            | Target::Caller => Class::Execute,
        };
        let action = self
            .vocabulary
            .action(method, server, target, class, question.web.map(|traits| &*traits.path))
            .filter(|action| action.applies_to(self.world.types.of(target)))
            .ok_or_else(|| Refusal("the schema has no such method on such a target".to_owned()))?;
        let triple = self.world.triple(principal, action, server, target);
        let slice = index.slice(&triple).map_err(|error| Refusal(format!("slice: {error}")))?;
        Ok(Place { action: action.clone(), triple, slice })
    }

    pub(super) fn stage(
        &self,
        question: &Question<'_>,
        place: Place,
    ) -> Result<(Scene, Arc<Slice>), Refusal> {
        let &Question { principal, server, listener, method, target, era, delegation, .. } =
            question;
        let Place { action, triple, slice } = place;
        let entities = self
            .world
            .entities(principal, &action, server, target, &triple)
            .map_err(|error| Refusal(format!("entities: {error}")))?;
        let (method, listener) = (method.name().into(), listener.into());
        let told = match question.asks {
            Some(asks) => asked::attribute(asks),
            None => {
                let agent = question.a2a.and_then(agents::attribute);
                let operation = action.operation.as_ref();
                agent.or_else(|| web::attribute(question.web?, operation))
            }
        };
        let delegation = delegation.and_then(delegated);
        Ok((Scene { action, triple, entities, method, listener, era, told, delegation }, slice))
    }
}

/// Where a question stands among the policies.
pub(super) struct Place {
    pub(super) action: Arc<Action>,
    triple: Triple,
    pub(super) slice: Arc<Slice>,
}

/// A question in Cedar's terms, without the arguments.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) action: Arc<Action>,
    pub(super) triple: Triple,
    pub(super) entities: Entities,
    method: Box<str>,
    listener: Box<str>,
    era: Era,
    /// What only a question of this kind has in its context.
    pub(super) told: Option<asked::Attribute>,
    delegation: Option<RestrictedExpression>,
}

impl Scene {
    pub(super) fn protocol(&self) -> Protocol {
        self.era.protocol()
    }

    pub(super) fn request(&self, input: Option<RestrictedExpression>) -> Result<Request, Refusal> {
        let text = |value: &str| Some(RestrictedExpression::new_string(value.to_owned()));
        let (name, told) = self.told.clone().unzip();
        self.request_with([
            ("method", text(&self.method)),
            ("era", text(self.era.as_str())),
            ("listener", text(&self.listener)),
            ("input", input),
            ("delegation", self.delegation.clone()),
            (name.unwrap_or_default(), told),
        ])
    }

    pub(super) fn request_for(
        &self,
        varying: &Varying,
        input: Option<Lifted<'_>>,
    ) -> Result<Request, Refusal> {
        let input = input.map(Lifted::into_expression).transpose();
        let input = input.map_err(|error| Refusal(format!("context: {error}")))?;
        if varying.past_input { self.request(input) } else { self.request_with([("input", input)]) }
    }

    fn request_with<const N: usize>(
        &self,
        pairs: [(&str, Option<RestrictedExpression>); N],
    ) -> Result<Request, Refusal> {
        let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let context =
            Context::from_pairs(pairs).map_err(|error| Refusal(format!("context: {error}")))?;
        let Triple { principal, action, resource } = &self.triple;
        let (principal, action, resource) =
            (principal.uid.clone(), action.uid.clone(), resource.uid.clone());
        // The schema is not consulted again: tests hold every request and entity made here against it.
        Request::new(principal, action, resource, context, None)
            .map_err(|error| Refusal(format!("request: {error}")))
    }
}

/// `context.delegation`. Making it can't fail; if it did, policies would miss it, which denies those that
/// look at it.
fn delegated(delegation: Delegation<'_>) -> Option<RestrictedExpression> {
    let Delegation { depth, hop, mode, root, user, tenant } = delegation;
    let number = |number| RestrictedExpression::new_long(i64::try_from(number).unwrap_or(i64::MAX));
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let pairs = [
        ("depth", number(depth)),
        ("hop", number(hop)),
        ("mode", text(mode)),
        ("root", text(root.as_str())),
    ];
    let told = [("user", user), ("tenant", tenant)];
    let told = told.into_iter().filter_map(|(name, value)| Some((name, text(value?))));
    let members = pairs.into_iter().chain(told).map(|(name, value)| (name.to_owned(), value));
    RestrictedExpression::new_record(members).ok()
}

/// Why a question can't even be put to the policies; the answer is no.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl Refusal {
    pub(super) fn into_decision(self, question: &Question<'_>) -> Decision {
        Decision {
            permit: false,
            policies: vec![],
            reason: None,
            errors: vec![self.0],
            class: question.method.rule().map_or(Class::Execute, |rule| rule.class),
        }
    }
}
