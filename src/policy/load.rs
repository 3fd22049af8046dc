//! From files to a checked policy set; every fault is told at once, and nothing is loaded then.

use std::{
    collections::HashMap, fmt, num::NonZero, panic::resume_unwind, path::Path, sync::Arc, thread,
};

use cedar_policy::{
    Effect, ParseErrors, Policy, PolicyId, PolicySet, ResourceConstraint, Template,
    ffi::DetailedError, pst,
};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::{
    Settings,
    analysis::{self, InputPath},
    grants::{self, Compiled},
    index::Entry,
    nesting::{self, DEEPEST, nesting},
    source::{Fault, LoadError, Source, Sources, Statement},
    validation::{Kind, validate},
    vocabulary::{SCHEMA, Vocabulary, located, types},
};
use crate::limits::Limit;

/// Fewer policies than this are not worth a thread.
const SMALLEST_CHUNK: usize = 64;

/// As many statements are parsed in one go: Cedar sets up its lexer anew for each text, which takes longer
/// than one policy, and keeps the syntax tree of all of a text in memory until it is done.
const PARSED_TOGETHER: usize = 64;

/// Where a policy comes from, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `@id`, or file and line.
    pub id: Arc<str>,
    /// `@reason`, if there is one.
    pub reason: Option<Arc<str>>,
    /// The file, relative to the policy directory.
    pub file: Arc<Path>,
    /// Line of the policy, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.id, self.file.display(), self.line)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// Everything that was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) vocabulary: Vocabulary,
    /// The policies as written.
    pub(crate) calls: Vec<Entry>,
    /// What is left of them for lists.
    pub(crate) lists: Vec<Entry>,
    /// What is left of them for lists of resource templates.
    pub(crate) templates: Vec<Entry>,
    /// Parallel to `calls`.
    pub(crate) origins: Vec<Origin>,
    /// How far calls may be passed on.
    pub(crate) delegation: grants::Terms,
    /// How often calls may be made.
    pub(crate) limits: Vec<Limit>,
    pub(crate) version: String,
    pub(crate) warnings: Vec<Fault>,
}

/// Reads, parses and validates. Pure in the settings and the files that they name.
pub(crate) fn load(settings: &Settings) -> Result<Loaded, LoadError> {
    let sources = Sources::read(&settings.directory).map_err(|faults| LoadError { faults })?;
    let mut warnings = vec![];
    let (vocabulary, mut faults) =
        match Vocabulary::build(settings, &sources.fragments, &mut warnings) {
            Ok(vocabulary) => (Some(vocabulary), vec![]),
            Err(faults) => (None, faults),
        };
    let compiled = vocabulary.as_ref().map_or_else(Compiled::default, |vocabulary| {
        grants::compile(settings, vocabulary, &sources.grants, &mut faults, &mut warnings)
    });
    let written = sources.policies.iter().chain(&compiled.sources);
    let parsed = parse(written, &mut faults);
    if let Some(vocabulary) = &vocabulary {
        validate(vocabulary, &parsed, &mut faults, &mut warnings);
    }
    let (Some(vocabulary), true) = (vocabulary, faults.is_empty()) else {
        return Err(LoadError { faults });
    };
    if !parsed.iter().any(|parsed| parsed.entry.effect == Effect::Permit) {
        let message = "no policy permits anything, so every call is refused".to_owned();
        warnings.push(Fault::of_settings(message).with_hint("write at least one `permit`"));
    }
    let mut loaded = Loaded {
        vocabulary,
        calls: vec![],
        lists: vec![],
        templates: vec![],
        origins: vec![],
        delegation: compiled.terms,
        limits: compiled.limits,
        version: version(settings, &sources, &[]),
        warnings,
    };
    let cases = in_parallel(&parsed, |chunk| chunk.iter().map(Cases::of).collect());
    for (parsed, cases) in parsed.iter().zip(cases) {
        match cases {
            Ok(cases) => {
                loaded.calls.push(cases.call);
                loaded.lists.extend(cases.list);
                loaded.templates.extend(cases.template);
                loaded.origins.push(parsed.origin.clone());
            }
            Err(error) => {
                let line = Some(parsed.origin.line);
                faults.push(parsed.source.fault(line, format!("can't be taken apart: {error}")));
            }
        }
    }
    if faults.is_empty() { Ok(loaded) } else { Err(LoadError { faults }) }
}

/// Works on chunks of a long slice on all processors, and joins the results in order. Parsing and
/// validating take about a tenth of a millisecond a policy.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&[T]) -> Vec<R> + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let size = items.len().div_ceil(threads).max(SMALLEST_CHUNK);
    if items.len() <= size {
        return work(items);
    }
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            items.chunks(size).map(|chunk| scope.spawn(move || work(chunk))).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        // A missing chunk could hold a forbid.
        results.flat_map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// One policy for each kind of question.
struct Cases {
    call: Entry,
    list: Option<Entry>,
    template: Option<Entry>,
}

impl Cases {
    /// Takes conditions apart where there is something to take: it costs another parse.
    fn of(parsed: &Parsed<'_>) -> Result<Self, Apart> {
        let mut call = parsed.entry.clone();
        let conditional = call.policy.is_some();
        // Both are reserved words, so a condition that looks at them has them literally. The scope has
        // `resource` as well.
        let text = parsed.statement.text;
        let reads_context = conditional && text.contains("context");
        let reads_resource = conditional && text.matches("resource").nth(1).is_some();
        let one_resource = match &call.scope.resource {
            ResourceConstraint::Any | ResourceConstraint::Is(_) => false,
            ResourceConstraint::Eq(uid)
            | ResourceConstraint::In(uid)
            | ResourceConstraint::IsIn(_, uid) => uid.type_name().basename() == types::RESOURCE,
        };
        if !(reads_context || reads_resource || one_resource) {
            return Ok(Self { list: Some(call.clone()), template: Some(call.clone()), call });
        }
        let tree = parsed.policy()?.to_pst()?;
        let body = tree.body();
        call.inputs = inputs(body);
        call.past_input =
            body.clauses().iter().map(analysis::expr_of).any(analysis::looks_past_input);
        let list = analysis::for_lists(body)?.map(analysis::to_policy).transpose()?;
        let template = analysis::for_templates(body)?.map(analysis::to_policy).transpose()?;
        Ok(Self { call, list: list.map(Entry::new), template: template.map(Entry::new) })
    }
}

/// Why a policy couldn't be taken apart; none is known that can't.
#[derive(Debug, thiserror::Error)]
enum Apart {
    #[error(transparent)]
    Parse(#[from] Box<ParseErrors>),
    #[error(transparent)]
    Tree(#[from] pst::PstConstructionError),
}

fn inputs(template: &pst::Template) -> Vec<InputPath> {
    let clauses = template.clauses().iter().map(analysis::expr_of);
    let mut paths: Vec<InputPath> = clauses.flat_map(analysis::input_paths).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// One policy, with its place.
pub(super) struct Parsed<'a> {
    pub(super) entry: Entry,
    /// What it is validated as, if not by itself.
    pub(super) kind: Option<Kind>,
    pub(super) origin: Origin,
    pub(super) source: &'a Source,
    pub(super) statement: Statement<'a>,
}

impl Parsed<'_> {
    /// The policy, parsed anew if it wasn't kept, under its id.
    pub(super) fn policy(&self) -> Result<Policy, Box<ParseErrors>> {
        match &self.entry.policy {
            Some(policy) => Ok(Policy::clone(policy)),
            None => Ok(Policy::parse(Some(PolicyId::new(&self.origin.id)), self.statement.text)?),
        }
    }
}

/// What is kept of a statement, before it has an id of its own.
struct Draft {
    entry: Entry,
    kind: Option<Kind>,
    id: Option<Arc<str>>,
    reason: Option<Arc<str>>,
}

impl Draft {
    fn of(policy: Policy, statement: Statement<'_>) -> Self {
        let annotation = |name: &str| {
            let mut annotations = policy.annotations();
            // Cedar's own look-up parses the name each time, which takes as long as the policy.
            annotations.find(|(known, _)| *known == name).map(|(_, text)| Arc::from(text))
        };
        Self {
            id: annotation("id"),
            reason: annotation("reason").filter(|why: &Arc<str>| !why.is_empty()),
            kind: Kind::of(&policy, statement.text),
            entry: Entry::new(policy),
        }
    }
}

fn parse<'a>(
    sources: impl Iterator<Item = &'a Source>,
    faults: &mut Vec<Fault>,
) -> Vec<Parsed<'a>> {
    let placed = |source: &'a Source| {
        source.statements().into_iter().map(move |statement| (source, statement))
    };
    let mut statements: Vec<(&Source, Statement<'_>)> = sources.flat_map(placed).collect();
    statements.retain(|(source, Statement { text, at })| {
        let safe = nesting(text) <= DEEPEST;
        if !safe {
            let message = format!("nests deeper than {DEEPEST}");
            faults.push(source.fault(Some(source.line(*at)), message).with_hint(nesting::HINT));
        }
        safe
    });
    let drafts = in_parallel(&statements, |chunk| {
        let policies = chunk.chunks(PARSED_TOGETHER).flat_map(parse_chunk);
        let drafts = policies
            .zip(chunk)
            .map(|(policy, (_, statement))| policy.map(|policy| Draft::of(policy, *statement)));
        drafts.collect()
    });
    let mut parsed: Vec<Parsed<'a>> = vec![];
    let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
    for ((source, statement), draft) in statements.into_iter().zip(drafts) {
        let line = source.line(statement.at);
        let Draft { entry, kind, id, reason } = match draft {
            Ok(draft) => draft,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let id: Arc<str> = match id {
            Some(id) if id.is_empty() => {
                faults.push(source.fault(Some(line), "`@id` is empty"));
                continue;
            }
            Some(id) => id,
            None => unnamed(source, line, &seen),
        };
        if let Some(first) = seen.get(&id).and_then(|at| parsed.get(*at)) {
            let first = format!("{}:{}", first.origin.file.display(), first.origin.line);
            faults.push(
                source
                    .fault(Some(line), format!("`@id(\"{id}\")` stands a second time"))
                    .with_hint(format!("the first is at {first}")),
            );
            continue;
        }
        seen.insert(id.clone(), parsed.len());
        parsed.push(Parsed {
            entry: entry.with_id(PolicyId::new(&id)),
            kind,
            origin: Origin { id, reason, file: source.file.clone(), line },
            source,
            statement,
        });
    }
    parsed
}

/// Parses statements in one go. Only if something is wrong is each one parsed alone, so that faults have
/// their place.
fn parse_chunk(statements: &[(&Source, Statement<'_>)]) -> Vec<Result<Policy, Fault>> {
    let texts: Vec<&str> = statements.iter().map(|(_, statement)| statement.text).collect();
    if let Ok(set) = texts.join("\n").parse::<PolicySet>()
        && set.num_of_policies() == statements.len()
    {
        // Cedar numbers the policies of one text in order.
        let ids = (0..statements.len()).map(|number| PolicyId::new(format!("policy{number}")));
        let policies: Option<Vec<Policy>> = ids.map(|id| set.policy(&id).cloned()).collect();
        if let Some(policies) = policies {
            return policies.into_iter().map(Ok).collect();
        }
    }
    statements.iter().map(|(source, statement)| parse_alone(source, *statement)).collect()
}

fn parse_alone(source: &Source, statement: Statement<'_>) -> Result<Policy, Fault> {
    Policy::parse(None, statement.text).map_err(|error| {
        if Template::parse(None, statement.text).is_ok() {
            source
                .fault(Some(source.line(statement.at)), "a template decides nothing")
                .with_hint("name the principal or resource in place of the slot")
        } else {
            located(source, statement.at, DetailedError::from(&error))
        }
    })
}

/// The id of a policy without `@id`: its place, numbered where one line holds several.
fn unnamed(source: &Source, line: usize, seen: &HashMap<Arc<str>, usize>) -> Arc<str> {
    let place = format!("{}:{line}", source.file.display());
    let mut numbered = (2..).map(|number| format!("{place}#{number}"));
    let mut id = place.clone();
    while seen.contains_key(id.as_str()) {
        id = numbered.next().unwrap_or_default();
    }
    id.into()
}

/// The [`version`](super::Policies::version) that a load would have now. While a file can't be read, it is that of
/// no set, and another one for whatever else changes. Much cheaper than loading.
pub fn version_on_disk(settings: &Settings) -> String {
    let (sources, faults) = Sources::readable(&settings.directory);
    version(settings, &sources, &faults)
}

/// Names the set by everything that it was made from: files, and the facts of the configuration. With faults it is
/// no set, but a state of the directory.
fn version(settings: &Settings, sources: &Sources, faults: &[Fault]) -> String {
    let Settings { directory: _, groups, path_template, servers, runs: _ } = settings;
    let mut hash = Sha256::new();
    let mut part = |name: &str, content: &str| {
        for text in [name, content] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
    };
    part("schema", SCHEMA);
    for source in sources.policies.iter().chain(&sources.fragments).chain(&sources.grants) {
        part(&source.file.display().to_string(), &source.text);
    }
    part("settings", &format!("{groups:?}{path_template:?}{servers:?}"));
    for fault in faults {
        part("fault", &fault.to_string());
    }
    HEXLOWER.encode(&hash.finalize()).chars().take(16).collect()
}
