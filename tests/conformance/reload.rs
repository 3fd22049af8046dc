//! Clients that keep a list, and a reload that changes it: each hears of it in the way of its SDK, through two
//! Lictors, and asks again.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
    time::timeout,
};

use crate::{
    PYTHON,
    chain::{Wire, governed_chain},
    process::fixture,
    programs::{START, script},
};

/// Drivers with the eras that they are run in.
const KEEPERS: [(&str, &str); 5] = [
    ("keeper.py", "legacy"),
    ("keeper.py", "auto"),
    ("keeper.mjs", "v1"),
    ("keeper.mjs", "legacy"),
    ("keeper.mjs", "modern"),
];

/// A tool that everybody is shown before.
const TOOL: &str = "test_simple_text";

/// How soon a client has to have asked again: a reload takes a second, a look five, and the machine is small.
const SOON: Duration = Duration::from_secs(40);

/// A client that prints its list.
struct Keeper {
    name: String,
    lists: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Keeper {
    fn start((driver, era): (&str, &str), url: &str) -> Self {
        let mut program = script(&format!("clients/{driver}"));
        let mut child = program.args([url, era]).spawn().expect("the driver runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let lists = BufReader::new(stdout).lines();
        Self { name: format!("{driver} {era}"), lists, _child: child }
    }

    /// Whether the next list has the tool.
    async fn shows(&mut self, patience: Duration) -> bool {
        let line = timeout(patience, self.lists.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{}: no list", self.name));
        let list = line.expect("text").unwrap_or_else(|| panic!("{} has ended", self.name));
        let names: Vec<String> = serde_json::from_str(&list).expect("names");
        assert!(names.len() > 3, "{}: {names:?}", self.name);
        names.iter().any(|name| name == TOOL)
    }
}

#[tokio::test]
async fn clients_ask_again_for_a_list_that_a_reload_changes() {
    let fixture = fixture(PYTHON, Wire::StreamableHttp).await;
    let chain = governed_chain(&fixture).await;
    let mut keepers: Vec<_> =
        KEEPERS.iter().map(|keeper| Keeper::start(*keeper, &chain.url)).collect();
    for keeper in &mut keepers {
        assert!(keeper.shows(START).await, "{}", keeper.name);
    }
    chain.forbid(TOOL);
    for keeper in &mut keepers {
        assert!(!keeper.shows(SOON).await, "{}", keeper.name);
    }
}
