//! What a list may show: all that some call could be permitted on.
//!
//! A list leaves nothing out that a call may reach, and may show more: it is no control. That calls are judged
//! by themselves is what keeps them out.

use cedar_policy::Effect;

use super::{Question, key::KeyRef, store::Policies};
use crate::protocol::{
    Era, Method, Target,
    method::{Governs, ListOf, METHODS, Rule},
};

impl Policies {
    /// Whether some call on this target could be permitted; what a list may show.
    ///
    /// Takes the question as it stands: the method is the list that is answered (`tools/list`), or the
    /// call to ask about; the target is one item of the list. Arguments are not looked at.
    pub fn may_list(&self, question: &Question<'_>) -> bool {
        let key = KeyRef::of(question);
        if let Some(known) = self.listed.get(&key) {
            return known;
        }
        let possible = match question.method.list() {
            Some(list) => calls_on(list, question.era).any(|rule| {
                self.is_possible(&Question { method: &Method::Known(rule), ..*question })
            }),
            None => self.is_possible(question),
        };
        if key.worth_keeping() {
            self.listed.insert(key.to_owned(), possible);
        }
        possible
    }

    /// Whether some arguments (and, for a template, some resource of the server) would be permitted.
    fn is_possible(&self, question: &Question<'_>) -> bool {
        let index = match question.target {
            Target::Template(_) => &self.templates,
            Target::Server
            | Target::Tool(_)
            | Target::Prompt(_)
            | Target::Resource(_)
            | Target::Task(_)
            | Target::Caller => &self.lists,
        };
        let Ok(place) = self.place(question, index) else { return false };
        let holds = |effect| place.slice.holding.iter().any(|(_, held)| *held == effect);
        let (permitted, forbidden) = (holds(Effect::Permit), holds(Effect::Forbid));
        if forbidden || !place.slice.permits {
            return false;
        }
        if place.slice.is_settled() {
            return permitted;
        }
        let Ok((scene, slice)) = self.stage(question, place) else { return false };
        let Ok(request) = scene.request(None) else { return false };
        let response = self.authorizer.is_authorized(&request, &slice.fixed, &scene.entities);
        // A forbid that fails here fails on every call, and refuses it. A permit that fails is unmet.
        let failed_forbid = response.diagnostics().errors().any(|error| {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            slice.fixed.policy(error.policy_id()).is_none_or(|at| at.effect() == Effect::Forbid)
        });
        let permitted = match response.decision() {
            cedar_policy::Decision::Allow => true,
            // No forbid holds if no policy does.
            cedar_policy::Decision::Deny => {
                permitted && response.diagnostics().reason().next().is_none()
            }
        };
        permitted && !failed_forbid
    }
}

/// Every call that could touch an item of a list, by the method table.
fn calls_on(list: ListOf, era: Era) -> impl Iterator<Item = &'static Rule> {
    let touches = move |governs: Governs| match list {
        ListOf::Tools => governs == Governs::Tool,
        ListOf::Prompts => matches!(governs, Governs::Prompt | Governs::Reference),
        ListOf::Resources | ListOf::Templates => {
            matches!(governs, Governs::Resource | Governs::Reference | Governs::Subscriptions)
        }
    };
    METHODS.iter().filter(move |rule| touches(rule.governs) && rule.exists_in(era))
}
