//! The names that servers have listed, as far as they are remembered.
//!
//! A change of policies or routes may show a caller something or hide it. Who has a list wants to know, and nobody
//! else; so it has to be known what could be in a list. Names are all that is kept, and only as many as fit.

use std::{
    collections::{HashMap, HashSet},
    sync::{PoisonError, RwLock},
};

use crate::protocol::method::ListOf;

/// Most names of one list of a server, and bytes of one; what is beyond is known to be there.
const MOST: (usize, usize) = (2_000, 512);

/// What servers have listed.
#[derive(Debug, Default)]
pub struct Listed(RwLock<HashMap<Box<str>, [Names; 4]>>);

#[derive(Debug, Default)]
struct Names {
    known: HashSet<Box<str>>,
    more: bool,
}

impl Listed {
    /// Takes note of an item; `server` is a name from the configuration.
    pub fn note(&self, server: &str, list: ListOf, name: &str) {
        let known = {
            let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
            servers.get(server).is_some_and(|lists| of(lists, list).has(name))
        };
        if !known {
            // Every critical section leaves the table whole, so a poisoned lock is usable.
            let mut servers = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if !servers.contains_key(server) {
                servers.insert(server.into(), Default::default());
            }
            if let Some(lists) = servers.get_mut(server) {
                of_mut(lists, list).add(name);
            }
        }
    }

    /// Whether something that the server has listed is such, or may be: not every name is known. Of what nobody
    /// has been shown, nobody has a list.
    pub fn any(&self, server: &str, list: ListOf, such: impl Fn(&str) -> bool) -> bool {
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        servers.get(server).is_some_and(|lists| {
            let names = of(lists, list);
            names.more || names.known.iter().any(|name| such(name))
        })
    }
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.known.contains(name) || (self.more && !self.takes(name))
    }

    fn takes(&self, name: &str) -> bool {
        let (most, longest) = MOST;
        self.known.len() < most && name.len() <= longest
    }

    fn add(&mut self, name: &str) {
        if self.takes(name) {
            self.known.insert(name.into());
        } else {
            self.more = true;
        }
    }
}

fn of(lists: &[Names; 4], list: ListOf) -> &Names {
    let [tools, prompts, resources, templates] = lists;
    match list {
        ListOf::Tools => tools,
        ListOf::Prompts => prompts,
        ListOf::Resources => resources,
        ListOf::Templates => templates,
    }
}

fn of_mut(lists: &mut [Names; 4], list: ListOf) -> &mut Names {
    let [tools, prompts, resources, templates] = lists;
    match list {
        ListOf::Tools => tools,
        ListOf::Prompts => prompts,
        ListOf::Resources => resources,
        ListOf::Templates => templates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_is_known_and_what_does_not_fit_may_be_anything() {
        let listed = Listed::default();
        assert!(!listed.any("files", ListOf::Tools, |_| true));
        listed.note("files", ListOf::Tools, "a");
        listed.note("files", ListOf::Tools, "a");
        assert!(listed.any("files", ListOf::Tools, |name| name == "a"));
        assert!(!listed.any("files", ListOf::Tools, |name| name != "a"));
        assert!(!listed.any("files", ListOf::Prompts, |_| true));
        assert!(!listed.any("other", ListOf::Tools, |_| true));
        listed.note("files", ListOf::Templates, &"t".repeat(MOST.1 + 1));
        assert!(listed.any("files", ListOf::Templates, |_| false));
        for number in 0..MOST.0 {
            assert!(!listed.any("files", ListOf::Tools, |_| false), "{number}");
            listed.note("files", ListOf::Tools, &number.to_string());
        }
        assert!(listed.any("files", ListOf::Tools, |_| false));
    }
}
