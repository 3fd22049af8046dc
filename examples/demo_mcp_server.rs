//! A small MCP server that keeps notes in memory, for the demonstration to stand in front of.
//!
//! It checks nothing: whoever reaches it may read, write and delete everything. `cargo run --example
//! demo_mcp_server -- --port 0` prints the address once it listens; the endpoint is `/mcp`.

use std::{collections::BTreeMap, error::Error, net::Ipv4Addr, sync::Arc, time::Duration};

use axum::serve::ListenerExt as _;
use clap::Parser;
use rmcp::{
    Peer, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ProgressNotificationParam, RequestMetaObject},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{net::TcpListener, sync::Mutex, time::sleep};

/// Keeps notes until it is stopped.
#[derive(Parser)]
struct Options {
    /// Port on 127.0.0.1; 0 lets the system choose.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[derive(Deserialize, JsonSchema)]
struct Named {
    /// Name of the note.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Written {
    /// Name of the note.
    name: String,
    /// What it shall say.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Upto {
    /// How far to count, 100 at most.
    to: u32,
}

#[derive(Clone)]
struct Notes {
    notes: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Notes {
    fn new() -> Self {
        let notes = [
            ("welcome", "Read me first."),
            ("todo", "Water the plants."),
            ("minutes", "We agreed to meet again."),
            ("protected/plan", "Nobody is to change this."),
        ];
        let notes = notes.map(|(name, text)| (name.to_owned(), text.to_owned()));
        Self { notes: Arc::new(Mutex::new(notes.into())) }
    }
}

#[tool_router]
impl Notes {
    #[tool(description = "List the names of all notes", annotations(read_only_hint = true))]
    async fn list_notes(&self) -> String {
        let notes = self.notes.lock().await;
        notes.keys().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    #[tool(description = "Read a note", annotations(read_only_hint = true))]
    async fn read_note(
        &self,
        Parameters(Named { name }): Parameters<Named>,
    ) -> Result<String, String> {
        self.notes.lock().await.get(&name).cloned().ok_or_else(|| format!("no note `{name}`"))
    }

    #[tool(description = "Write a note", annotations(destructive_hint = false))]
    async fn write_note(&self, Parameters(Written { name, text }): Parameters<Written>) -> String {
        let answer = format!("wrote `{name}`");
        self.notes.lock().await.insert(name, text);
        answer
    }

    #[tool(description = "Count, telling the progress", annotations(read_only_hint = true))]
    async fn count(
        &self,
        Parameters(Upto { to }): Parameters<Upto>,
        meta: RequestMetaObject,
        caller: Peer<RoleServer>,
    ) -> String {
        let to = to.min(100);
        for step in 1..=to {
            sleep(Duration::from_millis(50)).await;
            if let Some(token) = meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(step));
                // A caller that has gone doesn't want to know how far the count is.
                let _ = caller.notify_progress(progress.with_total(f64::from(to))).await;
            }
        }
        format!("counted to {to}")
    }

    #[tool(description = "Delete all notes", annotations(destructive_hint = true))]
    async fn delete_all(&self) -> String {
        let mut notes = self.notes.lock().await;
        let count = notes.len();
        notes.clear();
        format!("deleted {count} notes")
    }
}

#[tool_handler(name = "notes", version = "1.0.0")]
impl ServerHandler for Notes {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Options { port } = Options::parse();
    let notes = Notes::new();
    let service = StreamableHttpService::new(
        move || Ok(notes.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    announce(&listener)?;
    // Without it, an event waits for the acknowledgement of the one before, 40 ms as a rule.
    let listener = listener.tap_io(|connection| {
        // A connection that has gone already fails on its own.
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever started it reads the address from here")]
fn announce(listener: &TcpListener) -> std::io::Result<()> {
    println!("listening on {}", listener.local_addr()?);
    Ok(())
}
