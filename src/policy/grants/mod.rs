//! Grants: documents that say who may call what, and which agents may invoke each other.
//!
//! `*.grants.yaml` in the policy directory is compiled to Cedar at load, and joins the policies that are
//! written by hand. So there is one set: what is explained, tested and listed is what decides, and
//! nothing at run time knows of documents. The compiled text is that of `Statement`; `lictor policy
//! grants` shows it.
//!
//! | module | does |
//! |---|---|
//! | `yaml`, `document`, `shape` | files → entries with lines; every fault of form at once |
//! | `who`, `statement` | whom an entry speaks of; Cedar as text |
//! | `agents` | who may invoke whom, and who may take part at all |
//! | `tools` | who may call which tools |
//! | `limits` | how often and when agents may call: data, for whoever counts calls |
//! | `delegation` | how far calls may be passed on: data, for the stage that judges it |
//!
//! INVARIANT: a key either has an effect or is a fault. A permit comes only from an entry that has no
//! fault, and a set with a fault isn't loaded.

mod agents;
mod delegation;
mod document;
mod limits;
mod shape;
mod statement;
mod tools;
mod who;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Settings,
    source::{Fault, LoadError, Source, Sources},
    vocabulary::Vocabulary,
};
use document::{Document, Place, Reader};
use statement::Statement;

use crate::{limits::Limit, written::nearest};

pub(crate) use delegation::Terms;
pub use delegation::{Delegation, DelegationMode};

/// What the documents became.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// One for each file, with the policies as text.
    pub(crate) sources: Vec<Source>,
    pub(crate) terms: Terms,
    pub(crate) limits: Vec<Limit>,
    rows: Vec<Row>,
}

/// Who may do what, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// An agent, all below a path, or everybody.
    pub who: String,
    /// What they may do.
    pub may: String,
    /// To what.
    pub what: String,
    /// File and line that say so.
    pub place: String,
}

/// What the documents of a policy directory say, for people.
#[derive(Debug)]
pub struct Shown {
    /// Who may do what.
    pub rows: Vec<Row>,
    /// The policies that the documents became, as Cedar, each file's behind its name.
    pub cedar: String,
}

/// Reads and compiles the documents of a policy directory, for people to look at.
///
/// # Errors
/// All faults of the documents and of the schema.
pub fn show(settings: &Settings) -> Result<Shown, LoadError> {
    let sources = Sources::read(&settings.directory).map_err(|faults| LoadError { faults })?;
    let (mut faults, mut warnings) = (vec![], vec![]);
    let vocabulary = Vocabulary::build(settings, &sources.fragments, &mut warnings)
        .map_err(|faults| LoadError { faults })?;
    let compiled = compile(settings, &vocabulary, &sources.grants, &mut faults, &mut warnings);
    if !faults.is_empty() {
        return Err(LoadError { faults });
    }
    let text = |source: &Source| format!("// {}\n{}", source.file.display(), source.text);
    let cedar: Vec<String> = compiled.sources.iter().map(text).collect();
    Ok(Shown { rows: compiled.rows, cedar: cedar.join("\n") })
}

/// The published JSON schema of documents, as text.
pub fn schema() -> String {
    format!("{:#}\n", document::schema())
}

/// Compiles all files; what is wrong or dead is told with its place.
pub(crate) fn compile(
    settings: &Settings,
    vocabulary: &Vocabulary,
    sources: &[Source],
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Compiled {
    if sources.is_empty() {
        return Compiled::default();
    }
    let reader = match Reader::new() {
        Ok(reader) => reader,
        Err(fault) => {
            faults.push(fault);
            return Compiled::default();
        }
    };
    let mut found = vec![];
    let documents: Vec<Document<'_>> =
        sources.iter().flat_map(|source| reader.read(source, &mut found)).collect();
    let ids = documents.iter().flat_map(|document| &document.ids);
    let mut compiler = Compiler {
        settings,
        vocabulary,
        ids: ids.map(String::as_str).collect(),
        faults: found,
        warnings: vec![],
        statements: sources.iter().map(|source| (source, vec![])).collect(),
        rows: vec![],
    };
    let entries: Vec<_> = documents.iter().flat_map(Document::agents).collect();
    let agents = compiler.declared(&entries);
    let entries = documents.iter().flat_map(Document::grants);
    let grants: Vec<_> =
        entries.filter_map(|(place, entry)| compiler.granted(place, entry)).collect();
    compiler.suspend(&agents);
    compiler.close_agents(&agents);
    compiler.permit_invocations(&agents);
    compiler.close_tools(&agents, &grants);
    compiler.permit_tools(&grants);
    let limits = compiler.limits(&agents, &grants);
    let tenants = documents.iter().flat_map(Document::delegation);
    let tenants = compiler.tenants(tenants);
    let terms = grants.iter().filter_map(|grant| {
        let terms = grant.entry.delegation?;
        Some((grant.who.clone(), grant.tools.clone(), terms.into()))
    });
    let terms = Terms { tenants, grants: terms.collect() };
    let Compiler { statements, rows, faults: mut found, warnings: mut dead, .. } = compiler;
    for (found, all) in [(&mut found, faults), (&mut dead, warnings)] {
        found.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        all.append(found);
    }
    let sources = statements.into_iter().map(|(source, statements)| {
        let statements = statements.iter().map(|at| (at.line, at.to_string()));
        Source::compiled(&source.file, statements)
    });
    Compiled { sources: sources.collect(), terms, limits, rows }
}

/// Collects what entries become, and what is wrong with them.
struct Compiler<'a> {
    settings: &'a Settings,
    vocabulary: &'a Vocabulary,
    /// Every id that an entry declares, with or without a fault.
    ids: BTreeSet<&'a str>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    statements: Vec<(&'a Source, Vec<Statement>)>,
    rows: Vec<Row>,
}

impl<'a> Compiler<'a> {
    fn add(&mut self, place: Place<'a>, statement: Statement) {
        let of_file = |(source, _): &&mut (&Source, _)| std::ptr::eq(*source, place.source());
        if let Some((_, statements)) = self.statements.iter_mut().find(of_file) {
            statements.push(statement);
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    fn warn(&mut self, fault: Fault) {
        self.warnings.push(fault);
    }

    /// Whether an upstream exists, as far as that is known.
    fn check_server(&mut self, place: Place<'a>, below: &str, name: &str) -> bool {
        let known = &self.settings.servers;
        if name.is_empty() || name.contains('/') {
            self.fault(place.fault(below, format!("`{name}` is no name of an upstream")));
            return false;
        }
        if known.contains_key(name) || !is_configured(self.settings) {
            return true;
        }
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let hint = nearest(name, names.iter().copied());
        let hint = hint.unwrap_or_else(|| format!("there are: {}", names.join(", ")));
        let problem = format!("there is no upstream `{name}`");
        self.fault(place.fault(below, problem).with_hint(hint));
        false
    }

    fn tenants<'b>(
        &mut self,
        entries: impl Iterator<Item = (Place<'b>, &'b shape::TenantDelegation)>,
    ) -> BTreeMap<String, Delegation> {
        let mut tenants = BTreeMap::new();
        let names = self.settings.path_names();
        for (place, entry) in entries {
            if is_configured(self.settings) && !names.iter().any(|name| name == "tenant") {
                let problem = "nothing tells the tenant of an agent";
                let hint = "give the configuration a `policy.pathTemplate` with `{tenant}` in it";
                self.faults.push(place.fault("/tenant", problem).with_hint(hint));
            }
            let terms = Delegation { max_depth: entry.max_depth, mode: entry.mode.into() };
            if tenants.insert(entry.tenant.clone(), terms).is_some() {
                let problem = format!("tenant `{}` stands a second time", entry.tenant);
                self.faults.push(place.fault("/tenant", problem));
            }
        }
        tenants
    }
}

/// Whether a configuration is there to hold names against: it has an upstream at least. Policies that
/// are looked at on their own have none.
fn is_configured(settings: &Settings) -> bool {
    !settings.servers.is_empty()
}
