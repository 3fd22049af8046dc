//! The parameters of a call: `params` of JSON-RPC, the body of the REST binding.
//!
//! Every member that names a task, a context, a tenant or an address is looked at in all the places
//! that one of the versions has for it. What is said twice has to be the same.

use std::collections::BTreeSet;

use super::{
    Facts, Refusal, Traits,
    fields::{
        BYTES, CONFIG, CONFIGURATION, CONTENT, CONTEXT, DATA, EXTENSIONS, FILE, FORM, ID, KIND,
        MESSAGE, METADATA, NAME, PARENT, PARTS, PUSH, RAW, REFERENCES, REQUEST, SPAWNED, TASK,
        TENANT, TEXT, URI, URL, elements, fields, present, text,
    },
};
use crate::protocol::{
    Era, Fault, Target,
    address::Address,
    json::{Kind, Member, Value},
    method::{Governs, Rule, operation},
    spelling,
};

/// Each target costs a policy decision, and each text of a fact is given to policies, so that one
/// message can't have any number of them.
const MAX_TARGETS: usize = 256;
const MAX_TEXTS: usize = 256;

/// What is learned from path, query and parameters, whichever of them there are.
#[derive(Default)]
pub(super) struct Gathered {
    /// Whether a message may have the names that it has in version 0.3 over REST.
    earlier_names: bool,
    /// The task that the call is about.
    task: Option<Box<str>>,
    /// Other tasks that a message refers to.
    references: Vec<Box<str>>,
    tenant: Option<Box<str>>,
    contexts: BTreeSet<Box<str>>,
    parts: BTreeSet<Box<str>>,
    extensions: BTreeSet<Box<str>>,
    data_types: BTreeSet<Box<str>>,
    push_urls: BTreeSet<Box<str>>,
    push_hosts: BTreeSet<Box<str>>,
    form: Option<Box<str>>,
    spawned: Option<bool>,
    spawned_is_odd: bool,
}

impl Gathered {
    /// Begins with what the head asks for, for a call over JSON-RPC, or REST of version 1.0.
    pub(super) fn new(extensions: BTreeSet<Box<str>>) -> Self {
        Self { extensions, ..Self::default() }
    }

    /// Begins a call over REST.
    pub(super) fn of_rest(extensions: BTreeSet<Box<str>>, era: Era) -> Self {
        Self { earlier_names: era == Era::V03, ..Self::new(extensions) }
    }

    /// Reads parameters; `None` where there are none.
    pub(super) fn read(
        &mut self,
        rule: &Rule,
        era: Era,
        params: Option<Value<'_>>,
    ) -> Result<(), Refusal> {
        match params {
            Some(params) => self.params(rule, era, params)?,
            None if rule.governs == Governs::Message => return Err(NO_MESSAGE),
            None if rule.governs == Governs::Task && self.task.is_none() => return Err(NO_TASK),
            None if rule.action == operation::PUSH_CREATE.action => return Err(NO_URL),
            None => {}
        }
        Ok(())
    }

    fn params(&mut self, rule: &Rule, era: Era, params: Value<'_>) -> Result<(), Refusal> {
        let [message, request, configuration, metadata, tenant, context] =
            fields(params, [MESSAGE, REQUEST, CONFIGURATION, METADATA, TENANT, CONTEXT])?;
        let [id, task, name, parent] = fields(params, [ID, TASK, NAME, PARENT])?;
        self.tenant(text(tenant)?)?;
        self.form(metadata)?;
        match rule.governs {
            Governs::Message => {
                let message = self.by_either_name(message, request)?;
                self.message(present(message).ok_or(NO_MESSAGE)?)?;
                if let Some(configuration) = present(configuration) {
                    let [push] = fields(configuration, [PUSH])?;
                    if let Some(push) = present(push)
                        && !self.push(push, false)?
                    {
                        return Err(NO_URL);
                    }
                }
            }
            Governs::Task => {
                let by_id = id_is_task(rule, era);
                self.task(text(if by_id { id } else { task })?)?;
                if self.task.is_none() {
                    return Err(NO_TASK);
                }
                // No agent looks here; what would it be for, if it is another?
                self.task(text(task)?)?;
                self.resource_name(text(name)?)?;
                self.resource_name(text(parent)?)?;
                if rule.action == operation::PUSH_CREATE.action && !self.push(params, true)? {
                    return Err(NO_URL);
                }
            }
            Governs::Server => self.contexts.extend(text(context)?),
            Governs::Caller
            | Governs::Tool
            | Governs::Prompt
            | Governs::Resource
            | Governs::Reference
            | Governs::Subscriptions => {}
        }
        Ok(())
    }

    /// The task that the call is about.
    pub(super) fn task(&mut self, id: Option<Box<str>>) -> Result<(), Refusal> {
        agree(&mut self.task, id, "two different tasks")
    }

    /// The tenant.
    pub(super) fn tenant(&mut self, tenant: Option<Box<str>>) -> Result<(), Refusal> {
        agree(&mut self.tenant, tenant, "two different tenants")
    }

    /// A context, of a list.
    pub(super) fn context(&mut self, id: Box<str>) {
        self.contexts.insert(id);
    }

    /// `tasks/{id}` or `tasks/{id}/pushNotificationConfigs/{id}`, as version 0.3 names them in REST.
    fn resource_name(&mut self, name: Option<Box<str>>) -> Result<(), Refusal> {
        let Some(name) = name else { return Ok(()) };
        let odd = (Fault::Params, "a name that is not below `tasks/`");
        let id = name.strip_prefix("tasks/").and_then(|rest| rest.split('/').next());
        self.task(Some(id.filter(|id| !id.is_empty()).ok_or(odd)?.into()))
    }

    /// A member that version 0.3 calls otherwise over REST. Nobody else reads it by that name, and an
    /// agent that does would find there what others don't.
    fn by_either_name<'a>(
        &self,
        value: Option<Value<'a>>,
        earlier: Option<Value<'a>>,
    ) -> Result<Option<Value<'a>>, Refusal> {
        match (value, earlier) {
            (value, None) => Ok(value),
            (None, earlier) if self.earlier_names => Ok(earlier),
            (_, Some(_)) => Err((Fault::Invalid, "a governed member by a name of another version")),
        }
    }

    fn message(&mut self, message: Value<'_>) -> Result<(), Refusal> {
        let [task, context, references] = fields(message, [TASK, CONTEXT, REFERENCES])?;
        let [parts, content, extensions, metadata] =
            fields(message, [PARTS, CONTENT, EXTENSIONS, METADATA])?;
        self.task(text(task)?)?;
        self.contexts.extend(text(context)?);
        for reference in elements(references)? {
            self.references.extend(text(Some(reference))?);
            if self.references.len() >= MAX_TARGETS {
                return Err((Fault::Params, "more than 255 references to tasks"));
            }
        }
        for element in elements(self.by_either_name(parts, content)?)? {
            let kind = self.part(element)?;
            self.parts.insert(kind.into());
        }
        for extension in elements(extensions)? {
            self.extensions.extend(text(Some(extension))?);
            if self.extensions.len() > MAX_TEXTS {
                return Err((Fault::Params, "more than 256 extensions"));
            }
        }
        self.form(metadata)
    }

    /// A configuration of version 1.0, or one of version 0.3, which has another within it (over REST
    /// two). Whether it has an address.
    ///
    /// One that is created belongs to the task that the call is about; one within a message belongs
    /// to what will come of the message, and any task that it names is another.
    fn push(&mut self, config: Value<'_>, created: bool) -> Result<bool, Refusal> {
        let [url, tenant, task, name, inner, outer] =
            fields(config, [URL, TENANT, TASK, NAME, PUSH, CONFIG])?;
        self.tenant(text(tenant)?)?;
        match text(task)? {
            task if created => {
                self.task(task)?;
                self.resource_name(text(name)?)?;
            }
            task => self.references.extend(task),
        }
        let url = text(url)?;
        let mut found = url.is_some();
        if let Some(url) = url {
            let address = Address::parse(&url)
                .ok_or((Fault::Params, "a push URL is not a plain http or https address"))?;
            self.push_hosts.insert(address.host);
            self.push_urls.insert(url);
        }
        for nested in [present(inner), present(outer)].into_iter().flatten() {
            found |= self.push(nested, created)?;
        }
        Ok(found)
    }

    /// The kind of a part, as version 1.0 has it. A part of two contents is of two kinds to two readers.
    fn part(&mut self, part: Value<'_>) -> Result<&'static str, Refusal> {
        let [text, raw, url, data, file, kind] = fields(part, [TEXT, RAW, URL, DATA, FILE, KIND])?;
        // `data` may be `null` and still be there.
        let contents = [
            ("text", present(text)),
            ("raw", present(raw)),
            ("url", present(url)),
            ("data", data),
            ("file", present(file)),
        ];
        let mut contents = contents
            .into_iter()
            .filter_map(|(name, content)| content.map(|content| (name, content)));
        let (Some((name, content)), None) = (contents.next(), contents.next()) else {
            return Err((Fault::Params, "a part without a content, or with two"));
        };
        let (part_kind, earlier) = match name {
            "text" => ("text", "text"),
            "data" => {
                self.data_types(content, 1)?;
                ("data", "data")
            }
            "file" => (file_kind(content)?, "file"),
            other => (other, "file"),
        };
        if !matches!(name, "data" | "file") && content.kind() != Kind::String {
            return Err((Fault::Params, "the content of a part is not a string"));
        }
        match present(kind) {
            Some(kind) if kind.as_str().as_deref() != Some(earlier) => {
                Err((Fault::Params, "`kind` and the content of a part differ"))
            }
            Some(_) | None => Ok(part_kind),
        }
    }

    /// What a data part calls itself; version 0.3 has the data one level deeper over REST. Free content
    /// may have keys of any spelling, so whatever a reader could take for the type is one.
    fn data_types(&mut self, data: Value<'_>, deeper: usize) -> Result<(), Refusal> {
        for Member { name, value, .. } in data.members() {
            if name == "type" || spelling::is_variant(&name, &["type"]) {
                self.data_types.extend(value.as_str().map(|name| Box::from(&*name)));
            } else if name == "data" && deeper > 0 {
                self.data_types(value, deeper - 1)?;
            }
            if self.data_types.len() > MAX_TEXTS {
                return Err((Fault::Params, "more than 256 types of data"));
            }
        }
        Ok(())
    }

    fn form(&mut self, metadata: Option<Value<'_>>) -> Result<(), Refusal> {
        let Some(metadata) = present(metadata) else { return Ok(()) };
        let [form, spawned] = fields(metadata, [FORM, SPAWNED])?;
        let spawned = present(spawned);
        self.spawned_is_odd |= spawned.is_some_and(|spawned| spawned.kind() != Kind::Bool);
        let spawned = spawned.map(|spawned| spawned.as_bool() != Some(false));
        agree(&mut self.spawned, spawned, "it was spawned, and it was not")?;
        let form = form.and_then(Value::as_str).map(|form| Box::from(&*form));
        agree(&mut self.form, form, "two different forms")
    }

    /// What a call touches, and what else it tells.
    pub(super) fn finish(self, rule: &Rule) -> (Vec<Target>, Facts) {
        let mut targets = vec![self.task.map_or(Target::Server, Target::Task)];
        for reference in self.references {
            let target = Target::Task(reference);
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let streams = [operation::STREAM.action, operation::SUBSCRIBE.action];
        let traits = Traits {
            tenant: self.tenant,
            parts: self.parts,
            extensions: self.extensions,
            push_hosts: self.push_hosts,
            form: self.form,
            spawned: self.spawned.unwrap_or(false),
            streaming: streams.contains(&rule.action),
        };
        let Self { contexts, push_urls, data_types, spawned_is_odd, .. } = self;
        let facts = Facts { traits, contexts, push_urls, data_types, spawned_is_odd, rest: None };
        (targets, facts)
    }
}

const NO_TASK: Refusal = (Fault::Params, "the task's id is missing");
const NO_MESSAGE: Refusal = (Fault::Params, "`message` is missing");
const NO_URL: Refusal = (Fault::Params, "a push configuration without `url`");

/// Takes a value over, unless another is there already.
fn agree<T: PartialEq>(
    slot: &mut Option<T>,
    value: Option<T>,
    detail: &'static str,
) -> Result<(), Refusal> {
    match (&slot, value) {
        (Some(known), Some(value)) if *known != value => Err((Fault::Invalid, detail)),
        (_, Some(value)) => {
            *slot = Some(value);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

/// Whether `params.id` is the task. Otherwise it is a configuration's, and the task is
/// `params.taskId`.
fn id_is_task(rule: &Rule, era: Era) -> bool {
    let of_configs = [
        operation::PUSH_CREATE.action,
        operation::PUSH_GET.action,
        operation::PUSH_LIST.action,
        operation::PUSH_DELETE.action,
    ];
    match era {
        Era::V03 => rule.action != operation::PUSH_CREATE.action,
        Era::V10 => !of_configs.contains(&rule.action),
        Era::Legacy | Era::Modern | Era::Http => false,
    }
}

/// What a file of version 0.3 is in version 1.0.
fn file_kind(file: Value<'_>) -> Result<&'static str, Refusal> {
    let [uri, bytes] = fields(file, [URI, BYTES])?;
    match (present(uri), present(bytes)) {
        (Some(_), None) => Ok("url"),
        (None, Some(_)) => Ok("raw"),
        (Some(_), Some(_)) | (None, None) => {
            Err((Fault::Params, "a file without a content, or with two"))
        }
    }
}
