//! What a process finds in its environment: what is named for it, and little else.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::upstream::{SetupError, settings::Environment};

/// Names in the environment that programs can't do without.
const INHERITED: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"];

/// Longest file with a value for the environment, in bytes.
const MAX_VALUE: u64 = 64 << 10;

/// Names and values. What is set wins over what is inherited, and files over both.
pub(super) fn read(settings: &Environment) -> Result<Vec<(OsString, OsString)>, SetupError> {
    let names = INHERITED.iter().copied().chain(settings.allow.iter().map(String::as_str));
    let inherited = names.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let set = settings.set.iter().map(|(name, value)| (name.into(), value.into()));
    let mut environment: Vec<(OsString, OsString)> = inherited.chain(set).collect();
    for (name, path) in &settings.files {
        let value = read_value(path).map_err(|source| SetupError::Environment {
            path: path.display().to_string(),
            source,
        })?;
        environment.push((name.into(), value.into()));
    }
    Ok(environment)
}

/// A value from a file, without the line end that editors put there.
fn read_value(path: &Path) -> io::Result<String> {
    let mut value = String::new();
    File::open(path)?.take(MAX_VALUE + 1).read_to_string(&mut value)?;
    if value.len() as u64 > MAX_VALUE || value.contains('\0') {
        return Err(io::Error::other("it is no value"));
    }
    let end = value.strip_suffix('\n').map(|it| it.strip_suffix('\r').unwrap_or(it).len());
    value.truncate(end.unwrap_or(value.len()));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::*;

    #[test]
    fn what_is_nearer_to_the_process_wins() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let settings = Environment {
            allow: ["CARGO_PKG_NAME", "LICTOR_ABSENT"].map(str::to_owned).into(),
            set: [("HOME", "/srv"), ("B", "")].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
            files: [("T", file("t", "one\ntwo\r\n")), ("B", file("b", "x"))]
                .map(|(name, path)| (name.to_owned(), path))
                .into(),
        };
        // The later one of a name is the one that counts, as in `Command::envs`.
        let found: BTreeMap<OsString, OsString> =
            read(&settings).expect("values").into_iter().collect();
        let value = |name: &str| found.get(&OsString::from(name)).and_then(|it| it.to_str());
        assert_eq!(value("HOME"), Some("/srv"));
        assert_eq!(value("CARGO_PKG_NAME"), Some("lictor"));
        assert_eq!((value("T"), value("B")), (Some("one\ntwo"), Some("x")));
        assert_eq!(value("LICTOR_ABSENT"), None);
        assert!(
            found.keys().all(|name| name == "T"
                || name == "B"
                || name == "CARGO_PKG_NAME"
                || INHERITED.iter().any(|known| name == known)),
            "{:?}",
            found.keys()
        );
    }

    #[test]
    fn a_file_that_is_no_value_is_a_fault() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let long = directory.path().join("long");
        std::fs::write(&long, "x".repeat(MAX_VALUE as usize + 1)).expect("a file");
        let nul = directory.path().join("nul");
        std::fs::write(&nul, "a\0b").expect("a file");
        for path in [long, nul, PathBuf::from("/nonexistent/file")] {
            let files = [("T".to_owned(), path)].into();
            let error = read(&Environment { files, ..Default::default() }).expect_err("a fault");
            assert!(matches!(error, SetupError::Environment { .. }), "{error}");
        }
    }
}
