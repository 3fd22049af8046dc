//! The policy directory: which files belong to it, and where in them a statement stands.

use std::{
    fmt, fs, io, iter,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories nest this deep at most; more is taken for a loop of symbolic links.
const MAX_DEPTH: usize = 8;

/// Something wrong with (or worth a word about) what policies are loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, relative to the policy directory; `None` for a fault of the configuration.
    pub file: Option<Arc<Path>>,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Fault {
    pub(crate) fn of_settings(message: String) -> Self {
        Self { file: None, line: None, message, hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

/// Why a policy set was not loaded: every fault that could be found in one go.
#[derive(Debug, thiserror::Error)]
#[error("{} in the policies{}", count(faults.len()), listed(faults))]
pub struct LoadError {
    /// At least one, in the order of the files.
    pub faults: Vec<Fault>,
}

fn count(faults: usize) -> String {
    match faults {
        1 => "1 fault".to_owned(),
        more => format!("{more} faults"),
    }
}

fn listed(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

/// One file of the policy directory.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the policy directory.
    pub(crate) file: Arc<Path>,
    pub(crate) text: String,
    /// Where lines of the file begin in the text, by offset.
    marks: Vec<(usize, usize)>,
}

impl Source {
    pub(crate) fn new(file: &Path, text: String) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let marks = breaks.zip(2..).map(|((at, _), line)| (at + 1, line)).collect();
        Self { file: file.into(), text, marks }
    }

    /// What a file was compiled to: policies, each with the line of the file that it comes from.
    pub(crate) fn compiled(
        file: &Arc<Path>,
        policies: impl IntoIterator<Item = (usize, String)>,
    ) -> Self {
        let (mut text, mut marks) = (String::new(), vec![]);
        for (line, policy) in policies {
            marks.push((text.len(), line));
            text.push_str(&policy);
        }
        Self { file: file.clone(), text, marks }
    }

    /// The line of the file, from 1, that a byte stands in or comes from.
    pub(crate) fn line(&self, at: usize) -> usize {
        let passed = self.marks.partition_point(|(start, _)| *start <= at);
        let mark = passed.checked_sub(1).and_then(|last| self.marks.get(last));
        mark.map_or(1, |(_, line)| *line)
    }

    /// The line in which a text first stands.
    pub(crate) fn line_of(&self, needle: &str) -> Option<usize> {
        self.text.find(needle).map(|at| self.line(at))
    }

    pub(crate) fn fault(&self, line: Option<usize>, message: impl Into<String>) -> Fault {
        Fault { file: Some(self.file.clone()), line, message: message.into(), hint: None }
    }

    /// Cuts a policy file into its statements, so that each one gets its own place and its own fault.
    ///
    /// In Cedar's grammar a semicolon outside strings and comments ends a statement and stands nowhere
    /// else. A remainder without one is handed out too: parsing it tells what is missing.
    pub(crate) fn statements(&self) -> Vec<Statement<'_>> {
        let mut statements = vec![];
        let mut start = None;
        for (at, byte) in significant(&self.text) {
            match byte {
                b';' => {
                    let from = start.take().unwrap_or(at);
                    statements.extend(self.statement(from, at + 1));
                }
                _ if byte.is_ascii_whitespace() => {}
                _ => drop(start.get_or_insert(at)),
            }
        }
        if let Some(from) = start {
            statements.extend(self.statement(from, self.text.len()));
        }
        statements
    }

    fn statement(&self, from: usize, to: usize) -> Option<Statement<'_>> {
        self.text.get(from..to).map(|text| Statement { text, at: from })
    }
}

/// The bytes of Cedar's text that stand outside strings and comments, with their offsets; of a string its
/// first quotation mark.
pub(crate) fn significant(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut bytes = text.bytes().enumerate().peekable();
    iter::from_fn(move || {
        loop {
            let (at, byte) = bytes.next()?;
            match byte {
                b'/' if bytes.peek().is_some_and(|(_, next)| *next == b'/') => {
                    while bytes.next_if(|(_, byte)| *byte != b'\n').is_some() {}
                    continue;
                }
                b'"' => {
                    while let Some((_, byte)) = bytes.next() {
                        match byte {
                            b'\\' => drop(bytes.next()),
                            b'"' => break,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            return Some((at, byte));
        }
    })
}

/// One statement of a policy file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) text: &'a str,
    /// Offset in the file, in bytes.
    pub(crate) at: usize,
}

/// The sources of one policy set, each kind sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) policies: Vec<Source>,
    pub(crate) fragments: Vec<Source>,
    pub(crate) grants: Vec<Source>,
}

impl Sources {
    /// Reads all `*.cedar`, `*.cedarschema` and `*.grants.yaml` files at and below a directory.
    ///
    /// Names that start with a dot are left out: a mounted Kubernetes ConfigMap keeps a second copy of
    /// its files behind `..data`.
    pub(crate) fn read(directory: &Path) -> Result<Self, Vec<Fault>> {
        let (sources, faults) = Self::readable(directory);
        if faults.is_empty() { Ok(sources) } else { Err(faults) }
    }

    /// Those that can be read, and what is wrong with the others: no set to be loaded.
    pub(super) fn readable(directory: &Path) -> (Self, Vec<Fault>) {
        let mut faults = vec![];
        let mut files = vec![];
        walk(directory, 0, &mut files, &mut faults);
        files.sort();
        let mut sources = Self::default();
        for path in files {
            let file = path.strip_prefix(directory).unwrap_or(&path);
            let kind = match path.extension().and_then(|extension| extension.to_str()) {
                Some("cedar") => &mut sources.policies,
                // The built-in vocabulary, kept beside the policies for editors.
                Some("cedarschema") if file == Path::new("lictor.cedarschema") => continue,
                Some("cedarschema") => &mut sources.fragments,
                Some("yaml") if is_of_grants(file) => &mut sources.grants,
                Some("yml") if is_of_grants(file) => {
                    let fault =
                        Fault { file: Some(file.into()), ..Fault::of_settings(NAME.into()) };
                    faults.push(fault.with_hint("call it `.grants.yaml`"));
                    continue;
                }
                _ => continue,
            };
            match text_of(&path) {
                Ok(text) => kind.push(Source::new(file, text)),
                Err(error) => faults.push(unreadable(file, &error)),
            }
        }
        (sources, faults)
    }
}

/// Reading a pipe would wait for whoever writes to it, and reading a device has no end.
fn text_of(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    fs::read_to_string(path)
}

/// Left out quietly, a file that suspends an agent would suspend nobody.
const NAME: &str = "is not read by this name";

fn is_of_grants(file: &Path) -> bool {
    let stem = file.file_stem().map(Path::new);
    stem.and_then(Path::extension).is_some_and(|extension| extension == "grants")
}

/// Length of a file, and time of its change.
type Mark = (u64, i64, i64);

/// The files below a policy directory with their sizes and times of change: a look that is cheap enough for
/// every second, and tells when to look closer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Without size and times, what can't be looked at, such as a symbolic link that leads nowhere.
    files: Vec<(PathBuf, Option<Mark>)>,
    faults: Vec<Fault>,
}

impl Glance {
    /// Looks now. What can't be looked at makes a difference too.
    pub fn at(directory: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let (mut files, mut faults) = (vec![], vec![]);
        walk(directory, 0, &mut files, &mut faults);
        files.sort();
        let seen = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            // The time of change can't be set back, as that of modification can.
            Some((metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
        };
        let seen = files.into_iter().map(|path| {
            let seen = seen(&path);
            (path, seen)
        });
        Self { files: seen.collect(), faults }
    }
}

fn walk(directory: &Path, depth: usize, files: &mut Vec<PathBuf>, faults: &mut Vec<Fault>) {
    if depth > MAX_DEPTH {
        let message = format!("directories nest deeper than {MAX_DEPTH}");
        faults.push(Fault {
            file: Some(directory.into()),
            ..Fault::of_settings(message).with_hint("is there a loop of symbolic links?")
        });
        return;
    }
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return faults.push(unreadable(directory, &error)),
    };
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                faults.push(unreadable(directory, &error));
                continue;
            }
        };
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if path.is_dir() {
            walk(&path, depth + 1, files, faults);
        } else {
            files.push(path);
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault { file: Some(path.into()), ..Fault::of_settings(format!("can't be read: {error}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_strings_and_comments() {
        let text = "// permit; \"\n@id(\"a;\\\";\")\npermit (principal, action, resource); // x;\n\n\
                    forbid (principal,\n action, resource);\n\n  oops";
        let source = Source::new(Path::new("a.cedar"), text.to_owned());
        let found: Vec<_> = source
            .statements()
            .iter()
            .map(|statement| (source.line(statement.at), statement.text))
            .collect();
        assert_eq!(
            found,
            [
                (2, "@id(\"a;\\\";\")\npermit (principal, action, resource);"),
                (5, "forbid (principal,\n action, resource);"),
                (8, "oops"),
            ]
        );
    }
}
