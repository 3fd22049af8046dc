//! The members of `params` that decide what a message does.

use std::borrow::Cow;

use crate::protocol::{
    Fault, Method,
    json::{Kind, Member, Value},
    method::Governs,
    spelling,
};

/// What a refusal at this level consists of.
pub(super) type Refusal = (Fault, &'static str);

/// The governed names of `params`. The last three aren't judged yet, but a server that read another
/// spelling of them would do something that no reader of the ledger could see.
const NAMES: &[&str] = &[
    "_meta",
    "arguments",
    "name",
    "notifications",
    "ref",
    "requestState",
    "taskId",
    "uri",
    "inputResponses",
    "requestId",
    "task",
];

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The governed names of `params._meta`.
const META_NAMES: &[&str] = &[
    VERSION,
    CAPABILITIES,
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/related-task",
    "io.modelcontextprotocol/subscriptionId",
    "progressToken",
];

/// The governed members, wherever they were sent, whatever the method.
#[derive(Default)]
pub(super) struct Params<'a> {
    pub(super) name: Option<Value<'a>>,
    pub(super) arguments: Option<Value<'a>>,
    pub(super) uri: Option<Value<'a>>,
    pub(super) task_id: Option<Value<'a>>,
    pub(super) reference: Option<Value<'a>>,
    pub(super) notifications: Option<Value<'a>>,
    request_state: Option<Value<'a>>,
    pub(super) meta: Meta<'a>,
    misspelt: bool,
}

/// `params._meta`.
#[derive(Default)]
pub(super) struct Meta<'a> {
    pub(super) version: Option<Value<'a>>,
    pub(super) progress_token: Option<Value<'a>>,
    capabilities: Option<Value<'a>>,
    malformed: bool,
    misspelt: bool,
}

impl<'a> Params<'a> {
    pub(super) fn read(params: Option<Value<'a>>) -> Self {
        let mut read = Self::default();
        for Member { name, value, .. } in params.into_iter().flat_map(Value::members) {
            match &*name {
                "_meta" => read.meta = Meta::read(value),
                "arguments" => read.arguments = Some(value),
                "name" => read.name = Some(value),
                "notifications" => read.notifications = Some(value),
                "ref" => read.reference = Some(value),
                "requestState" => read.request_state = Some(value),
                "taskId" => read.task_id = Some(value),
                "uri" => read.uri = Some(value),
                other => read.misspelt |= spelling::is_variant(other, NAMES),
            }
        }
        read
    }

    pub(super) fn check_spelling(&self) -> Result<(), Refusal> {
        if self.misspelt || self.meta.misspelt {
            return Err((Fault::Invalid, "a governed member of `params` in another spelling"));
        }
        if self.meta.malformed {
            return Err((Fault::Params, "`_meta` is not an object"));
        }
        Ok(())
    }

    /// The keys without which a modern request can't be served.
    pub(super) fn check_required_meta(&self) -> Result<(), Refusal> {
        if self.meta.version.is_none() {
            return Err((Fault::Params, "`_meta` lacks io.modelcontextprotocol/protocolVersion"));
        }
        match self.meta.capabilities.map(Value::kind) {
            Some(Kind::Object) => Ok(()),
            Some(_) => Err((Fault::Params, "the client capabilities in `_meta` are not an object")),
            None => {
                Err((Fault::Params, "`_meta` lacks io.modelcontextprotocol/clientCapabilities"))
            }
        }
    }

    /// What `Mcp-Name` may say: the name of the governed object; for a method that we don't know,
    /// any of the names that the body gives.
    pub(super) fn mirrored_names(&self, method: &Method) -> Vec<Cow<'a, str>> {
        let named = match method.rule().map(|rule| rule.governs) {
            Some(Governs::Tool | Governs::Prompt) => [self.name, None, None],
            Some(Governs::Resource) => [self.uri, None, None],
            Some(Governs::Task) => [self.task_id, None, None],
            Some(
                Governs::Server
                | Governs::Caller
                | Governs::Reference
                | Governs::Subscriptions
                | Governs::Message,
            ) => [None; 3],
            None => [self.name, self.uri, self.task_id],
        };
        named.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The `requestState` that is sent back. A vendor's method may mean something of its own by it.
    pub(super) fn request_state(&self, method: &Method) -> Result<Option<Cow<'a, str>>, Refusal> {
        match self.request_state {
            Some(state) if method.rule().is_some() && state.kind() != Kind::Null => {
                let detail = "`params.requestState` is not a string";
                state.as_str().map(Some).ok_or((Fault::Params, detail))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Where the arguments start, for the methods that have typed ones.
    pub(super) fn typed_arguments(&self, method: &Method) -> Result<Option<usize>, Refusal> {
        let typed = match method.rule().map(|rule| rule.governs) {
            Some(Governs::Tool | Governs::Prompt) => self.arguments,
            Some(
                Governs::Server
                | Governs::Caller
                | Governs::Resource
                | Governs::Task
                | Governs::Reference
                | Governs::Subscriptions
                | Governs::Message,
            )
            | None => None,
        };
        match typed {
            Some(arguments) if arguments.kind() != Kind::Object => {
                Err((Fault::Params, "`params.arguments` is not an object"))
            }
            Some(arguments) => Ok(Some(arguments.span().start)),
            None => Ok(None),
        }
    }
}

impl<'a> Meta<'a> {
    fn read(meta: Value<'a>) -> Self {
        let mut read = Self { malformed: meta.kind() != Kind::Object, ..Self::default() };
        for Member { name, value, .. } in meta.members() {
            match &*name {
                VERSION => read.version = Some(value),
                CAPABILITIES => read.capabilities = Some(value),
                "progressToken" => read.progress_token = Some(value),
                other => read.misspelt |= spelling::is_variant(other, META_NAMES),
            }
        }
        read
    }
}
