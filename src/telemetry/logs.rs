//! Log lines: JSON or readable, on standard error.
//!
//! What dependencies tell through the `log` crate passes a bridge of ours. They call whatever a
//! stranger's bytes set off an error; such lines go to `debug`, since nobody unauthenticated may
//! fill an operator's log, and what matters of them is in metrics and ledger.

use tracing::{Subscriber, level_filters::LevelFilter, subscriber::SetGlobalDefaultError};
use tracing_subscriber::{EnvFilter, Layer, fmt::MakeWriter, layer::SubscriberExt, registry};

use super::settings::{Format, Settings};

/// What a stranger can set off: the target's beginning and the message's.
const NOISE: &[(&str, &str)] = &[
    ("pingora_core::services::listening", "Downstream handshake"),
    ("pingora_core::apps", ""),
    ("pingora_core::protocols", ""),
    ("rustls", ""),
];

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `RUST_LOG` can't be read.
    #[error("`RUST_LOG` is no valid filter")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    /// They are set up already.
    #[error("logs are set up already")]
    Subscriber(#[from] SetGlobalDefaultError),
    /// They are set up already, for dependencies.
    #[error("the log bridge is set up already")]
    Bridge(#[from] log::SetLoggerError),
}

/// Sets logs up for the whole process. `RUST_LOG` wins over the level in `settings`.
pub fn init(settings: Settings) -> Result<(), LogError> {
    let level = settings.level.into();
    let filter = EnvFilter::builder().with_default_directive(level).from_env()?;
    tracing::subscriber::set_global_default(subscriber(settings.logs, filter, std::io::stderr))?;
    log::set_logger(&Bridge)?;
    log::set_max_level(most_of(LevelFilter::current()));
    Ok(())
}

fn subscriber<W>(format: Format, filter: EnvFilter, writer: W) -> impl Subscriber
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format {
        Format::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        Format::Text => lines.boxed(),
    };
    registry().with(filter).with(lines)
}

fn most_of(level: LevelFilter) -> log::LevelFilter {
    match level {
        LevelFilter::OFF => log::LevelFilter::Off,
        LevelFilter::ERROR => log::LevelFilter::Error,
        LevelFilter::WARN => log::LevelFilter::Warn,
        LevelFilter::INFO => log::LevelFilter::Info,
        LevelFilter::DEBUG => log::LevelFilter::Debug,
        LevelFilter::TRACE => log::LevelFilter::Trace,
    }
}

/// Takes what dependencies log, under the target `dependency`, with their own target in a field.
#[derive(Debug)]
struct Bridge;

impl log::Log for Bridge {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        let from = record.target();
        let said = record.args();
        match severity(record) {
            log::Level::Error => tracing::error!(target: "dependency", from, "{said}"),
            log::Level::Warn => tracing::warn!(target: "dependency", from, "{said}"),
            log::Level::Info => tracing::info!(target: "dependency", from, "{said}"),
            log::Level::Debug => tracing::debug!(target: "dependency", from, "{said}"),
            log::Level::Trace => tracing::trace!(target: "dependency", from, "{said}"),
        }
    }

    fn flush(&self) {}
}

/// The level at which a record is passed on.
fn severity(record: &log::Record<'_>) -> log::Level {
    let noise = NOISE.iter().any(|(target, message)| {
        record.target().starts_with(target)
            && (message.is_empty() || record.args().to_string().starts_with(message))
    });
    if noise { record.level().max(log::Level::Debug) } else { record.level() }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use log::Log;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Buffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("the lock").clone()).expect("UTF-8")
        }
    }

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("the lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, filter: &str, act: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let filter = EnvFilter::new(filter);
        let subscriber = subscriber(format, filter, move || writer.clone());
        tracing::subscriber::with_default(subscriber, act);
        buffer.text()
    }

    #[test]
    fn json_lines_hold_fields_and_span() {
        let text = written(Format::Json, "info", || {
            let _span = tracing::info_span!("call", decision_id = "0198").entered();
            tracing::warn!(kind = "policy_denied", "refused");
            tracing::debug!("not this one");
        });
        let line: Value = serde_json::from_str(&text).expect("one JSON object");
        for (pointer, value) in [
            ("/level", "WARN"),
            ("/message", "refused"),
            ("/kind", "policy_denied"),
            ("/span/name", "call"),
            ("/span/decision_id", "0198"),
        ] {
            assert_eq!(line.pointer(pointer).and_then(Value::as_str), Some(value), "{text}");
        }
    }

    #[test]
    fn readable_lines_are_for_people() {
        let text = written(Format::Text, "info", || tracing::info!(bind = "x", "listening"));
        assert!(text.trim_end().ends_with("listening bind=\"x\""), "{text}");
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn logs_are_set_up_once() {
        let settings = Settings { logs: Format::Text, level: LevelFilter::WARN };
        init(settings).expect("the first time");
        assert_eq!(log::max_level(), most_of(LevelFilter::current()));
        assert!(matches!(init(settings), Err(LogError::Subscriber(_))));
    }

    #[test]
    fn strangers_cannot_fill_the_log() {
        let say = |level, target, message: &str| {
            let arguments = format_args!("{message}");
            let record = log::Record::builder().level(level).target(target).args(arguments).build();
            Bridge.log(&record);
        };
        let text = written(Format::Json, "info", || {
            say(
                log::Level::Error,
                "pingora_core::services::listening",
                "Downstream handshake error from 10.0.0.1: x",
            );
            say(
                log::Level::Error,
                "pingora_core::services::listening",
                "Downstream handshake timeout",
            );
            say(log::Level::Error, "pingora_core::apps::http_app", "HTTP server fails to read");
            say(log::Level::Warn, "rustls::common_state", "Sending fatal alert");
            say(log::Level::Error, "pingora_core::services::listening", "Accept() failed x");
        });
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let [line] = lines.as_slice() else { panic!("{text}") };
        assert_eq!(line["message"], "Accept() failed x");
        assert_eq!(line["from"], "pingora_core::services::listening");
        assert_eq!(line["level"], "ERROR");
        let text = written(Format::Json, "debug", || {
            say(log::Level::Warn, "rustls::common_state", "Sending fatal alert");
        });
        assert!(text.contains("\"level\":\"DEBUG\""), "{text}");
    }
}
