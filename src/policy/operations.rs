//! The operations of web APIs that fragments declare: `"github/POST /repos/{owner}/{repo}/issues"`.
//!
//! An operation is an action of its own, so that policies can name it, its class can differ from its method's, and
//! what stands in its path and its body has names and types. A call is the operation whose template fits its
//! path; of two that fit, the one that says more literally. What no template fits is `GET.other` and so on.
//!
//! Refused: two templates that fit one path without one of them being the closer one; servers would differ.

use std::collections::{HashMap, HashSet};

use crate::protocol::{Method, method::Rule};

/// Declared operations, by server.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    servers: HashMap<String, Vec<Operation>>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Name of its action.
    pub(crate) action: String,
    /// Its method.
    pub(crate) rule: &'static Rule,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Named(String),
}

impl Operations {
    /// Adds an operation of a server.
    pub(crate) fn add(&mut self, server: &str, operation: Operation) -> Result<(), String> {
        let known = self.servers.entry(server.to_owned()).or_default();
        if let Some(other) = known.iter().find(|other| operation.clashes_with(other)) {
            return Err(format!("`{}` fits the same paths", other.action));
        }
        known.push(operation);
        Ok(())
    }

    /// The operation that a request is.
    pub(crate) fn find(&self, server: &str, rule: &Rule, path: &str) -> Option<&Operation> {
        let fits =
            |operation: &&Operation| operation.rule.name == rule.name && operation.fits(path);
        let fitting = self.servers.get(server)?.iter().filter(fits);
        fitting.reduce(|best, other| if other.is_closer_than(best) { other } else { best })
    }
}

impl Operation {
    /// Reads the name of an action: the server and the operation; `None` if it is of something else.
    pub(crate) fn parse(action: &str) -> Result<Option<(&str, Self)>, String> {
        let parts = action.split_once('/').and_then(|(server, rest)| {
            let (method, template) = rest.split_once(' ')?;
            Some((server, method, template))
        });
        let Some((server, method, template)) = parts else { return Ok(None) };
        let rule = Method::of_web(method).rule().ok_or_else(|| {
            format!("`{method}` is none of the methods GET, HEAD, POST, PUT, PATCH and DELETE")
        })?;
        let segments = segments(template)?;
        Ok(Some((server, Self { action: action.to_owned(), rule, segments })))
    }

    /// The names in its template.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Named(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// What the names stand for in a path that fits.
    pub(crate) fn named<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.segments.iter().zip(parts(path)).filter_map(|(segment, part)| match segment {
            Segment::Named(name) => Some((name.as_str(), part)),
            Segment::Literal(_) => None,
        })
    }

    fn fits(&self, path: &str) -> bool {
        let fits = |(segment, part): (&Segment, &str)| match segment {
            Segment::Named(_) => true,
            Segment::Literal(literal) => literal == part,
        };
        parts(path).count() == self.segments.len()
            && self.segments.iter().zip(parts(path)).all(fits)
    }

    /// Whether some path fits both, and neither is the closer one.
    fn clashes_with(&self, other: &Self) -> bool {
        let both = |(one, other): (&Segment, &Segment)| match (one, other) {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            (Segment::Named(_), _) | (_, Segment::Named(_)) => true,
        };
        self.rule.name == other.rule.name
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(both)
            && !self.is_closer_than(other)
            && !other.is_closer_than(self)
    }

    /// Whether, among templates that fit one path, it is literal wherever the other is, and somewhere else.
    fn is_closer_than(&self, other: &Self) -> bool {
        let literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
        let pairs = || {
            let pairs = self.segments.iter().zip(&other.segments);
            pairs.map(|(one, other)| (literal(one), literal(other)))
        };
        pairs().all(|(one, other)| one || !other) && pairs().any(|(one, other)| one && !other)
    }
}

/// The segments of a path as policies see it.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/').filter(|part| !part.is_empty())
}

fn segments(template: &str) -> Result<Vec<Segment>, String> {
    let fault = |why: &str| format!("`{template}`: {why}");
    let rest = template.strip_prefix('/').ok_or_else(|| fault("a path starts with a slash"))?;
    let mut names = HashSet::new();
    let mut segments = Vec::new();
    for segment in rest.split('/').filter(|_| !rest.is_empty()) {
        let inner = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
        segments.push(match inner {
            Some(name) => {
                let legal = name.starts_with(|first: char| first.is_ascii_lowercase())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if !legal || !names.insert(name) {
                    return Err(fault("a name is letters and digits, and stands once"));
                }
                Segment::Named(name.to_owned())
            }
            None if segment.is_empty()
                || segment.contains(['{', '}', '%', ';', '?', '#', '\\']) =>
            {
                return Err(fault("a segment is plain text or one name in braces"));
            }
            None => Segment::Literal(segment.to_owned()),
        });
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(names: &[&str]) -> Result<Operations, String> {
        let mut all = Operations::default();
        for name in names {
            let (server, operation) = Operation::parse(name)?.ok_or("no operation")?;
            all.add(server, operation)?;
        }
        Ok(all)
    }

    #[test]
    fn the_closest_template_wins() {
        let all = operations(&[
            "api/GET /",
            "api/GET /users/{id}",
            "api/GET /users/me",
            "api/GET /users/{id}/keys/{key}",
            "api/PUT /users/{id}",
            "other/GET /users/you",
        ])
        .unwrap();
        for (server, method, path, expected) in [
            ("api", "GET", "/", Some("api/GET /")),
            ("api", "GET", "/users/me", Some("api/GET /users/me")),
            ("api", "GET", "/users/Me", Some("api/GET /users/{id}")),
            ("api", "GET", "/users/you", Some("api/GET /users/{id}")),
            ("api", "PUT", "/users/me", Some("api/PUT /users/{id}")),
            ("api", "GET", "/users/a/keys/b", Some("api/GET /users/{id}/keys/{key}")),
            ("api", "GET", "/users", None),
            ("api", "GET", "/users/a/keys", None),
            ("api", "POST", "/users/me", None),
            ("other", "GET", "/users/me", None),
            ("third", "GET", "/", None),
        ] {
            let rule = Method::of_web(method).rule().unwrap();
            let found = all.find(server, rule, path);
            assert_eq!(found.map(|it| it.action.as_str()), expected, "{method} {path}");
        }
        let rule = Method::of_web("GET").rule().unwrap();
        let found = all.find("api", rule, "/users/a b/keys/c").unwrap();
        assert_eq!(
            found.named("/users/a b/keys/c").collect::<Vec<_>>(),
            [("id", "a b"), ("key", "c")]
        );
        assert_eq!(found.names().collect::<Vec<_>>(), ["id", "key"]);
    }

    #[test]
    fn templates_that_clash_or_are_none_are_told() {
        for names in [
            &["api/GET /a/{b}", "api/GET /{a}/b"][..],
            &["api/GET /a/{b}", "api/GET /a/{c}"],
            &["api/GET /a", "api/GET /a"],
            &["api/get /a"],
            &["api/TRACE /a"],
            &["api/GET a"],
            &["api/GET /a/"],
            &["api/GET //a"],
            &["api/GET /{}"],
            &["api/GET /{A}"],
            &["api/GET /{a}/{a}"],
            &["api/GET /{a}b"],
            &["api/GET /a%20b"],
            &["api/GET /a?b"],
        ] {
            assert!(operations(names).is_err(), "{names:?}");
        }
        for name in ["acme/doThing", "api/GET", "GET", "read"] {
            assert_eq!(Operation::parse(name), Ok(None), "{name}");
        }
        assert!(operations(&["api/GET /{a}/b", "api/GET /{a}/{b}", "api/GET /a/b"]).is_ok());
    }
}
