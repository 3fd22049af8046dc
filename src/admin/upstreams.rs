//! What operators see of upstreams, and the one thing that they can do to one: close its breaker.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;

use super::api::{DeskPlace, Fault};
use crate::upstream::{BreakerReading, Phase, Upstream};

#[derive(Serialize)]
struct Shown {
    name: String,
    /// `null` where it is switched off.
    breaker: Option<ShownBreaker>,
    calls: Places,
    streams: Places,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownBreaker {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_for_ms: Option<u64>,
    failures_in_a_row: u32,
    openings: u64,
    /// Tools whose own breakers aren't closed.
    tools: Vec<Tool>,
}

#[derive(Serialize)]
struct Tool {
    name: Box<str>,
    state: &'static str,
}

#[derive(Serialize)]
struct Places {
    taken: usize,
    all: usize,
}

pub(super) async fn list(State(place): State<DeskPlace>) -> Result<Response, Fault> {
    let desk = place.get().ok_or(Fault::Starting)?;
    let shown: Vec<_> = (desk.upstreams)().iter().map(|upstream| Shown::of(upstream)).collect();
    Ok(Json(json!({ "upstreams": shown })).into_response())
}

pub(super) async fn reset(
    State(place): State<DeskPlace>,
    Path(name): Path<String>,
) -> Result<Response, Fault> {
    let desk = place.get().ok_or(Fault::Starting)?;
    let upstreams = (desk.upstreams)();
    let upstream = upstreams.iter().find(|upstream| upstream.settings().name == name);
    let Some(upstream) = upstream else { return Err(Fault::Upstream(name)) };
    upstream.reset_breaker();
    tracing::warn!(upstream = name, "an operator closed the breaker");
    Ok(Json(Shown::of(upstream)).into_response())
}

impl Shown {
    fn of(upstream: &Upstream) -> Self {
        let reading = upstream.admission();
        let places = |(taken, all)| Places { taken, all };
        Self {
            name: upstream.settings().name.clone(),
            breaker: reading.breaker.map(ShownBreaker::of),
            calls: places(reading.calls),
            streams: places(reading.streams),
        }
    }
}

impl ShownBreaker {
    fn of(reading: BreakerReading) -> Self {
        let tool = |(name, phase): (Box<str>, Phase)| Tool { name, state: phase.as_str() };
        Self {
            state: reading.phase.as_str(),
            opens_for_ms: reading
                .opens_for
                .map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
            failures_in_a_row: reading.failures_in_a_row,
            openings: reading.openings,
            tools: reading.tools.into_iter().map(tool).collect(),
        }
    }
}
