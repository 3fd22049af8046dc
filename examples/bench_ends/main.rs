//! Both ends of a call that `make bench` measures: the load in front of a proxy and the server
//! behind it.
//!
//! Neither end is measured, but both share one core, so they do as little as they can: no HTTP
//! library, one thread, one buffer a connection. What they must not save is the check that a call
//! was really made: the server reads every body to its end and answers with its length, and the
//! load compares every answer byte for byte and gives up at the first that differs.

mod load;
mod message;
mod process;
mod streams;
mod upstream;

use clap::Parser;

#[derive(Parser)]
enum Arguments {
    /// Answer every POST on one address.
    Upstream(upstream::Arguments),
    /// Call one address and print what that cost, as one line of JSON.
    Load(load::Arguments),
    /// Open many event streams on one address and print what that cost, as one line of JSON.
    Streams(streams::Arguments),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    match Arguments::parse() {
        Arguments::Upstream(arguments) => upstream::serve(arguments).await,
        Arguments::Load(arguments) => load::run(arguments).await,
        Arguments::Streams(arguments) => streams::run(arguments).await,
    }
}
