//! The administration API: what is revoked, how upstreams are doing, and changes of either.
//!
//! | request | does |
//! |---|---|
//! | `GET /revocations` | lists what is revoked |
//! | `POST /revocations` | revokes something: `kind`, `value`, `reason`, `by`, and `for` how long if not until it is lifted |
//! | `DELETE /revocations/{id}` | lifts a revocation |
//! | `GET /upstreams` | shows breakers and places |
//! | `POST /upstreams/{name}/reset` | closes the breakers of an upstream |
//!
//! Everything is JSON; an error is an object with `error`. Answers to changes are sent when the change is in force.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State, rejection::JsonRejection},
    http::StatusCode,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::{
    guard::{Guard, admit},
    upstreams,
};
use crate::{
    revocation::{ChangeError, Register, Revocation, Subject, SubjectError, What},
    state::Keeping,
    telemetry::Clock,
    upstream::Upstream,
};

/// Longest request, in bytes.
const LONGEST: usize = 16 << 10;

/// What operators work on.
pub struct Desk {
    /// What is revoked.
    pub revocations: Arc<Register>,
    /// Whether anything in force tells tenants from each other.
    pub knows_tenants: Box<dyn Fn() -> bool + Send + Sync>,
    /// The upstreams there are now.
    pub upstreams: Box<dyn Fn() -> Vec<Arc<Upstream>> + Send + Sync>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("revocations", &self.revocations).finish_non_exhaustive()
    }
}

/// A desk that is taken once everything on it is there.
pub type DeskPlace = Arc<OnceLock<Desk>>;

/// What an operator asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    kind: String,
    value: String,
    reason: String,
    by: String,
    #[serde(rename = "for")]
    lasts: Option<String>,
}

/// A revocation as operators see it.
#[derive(Serialize)]
struct Shown {
    id: Uuid,
    kind: &'static str,
    value: String,
    reason: Box<str>,
    by: Box<str>,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Of one that was just made: where it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'static str>,
}

/// Why something that was asked for isn't done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("starting; try again shortly")]
    Starting,
    #[error("no such request: {0}")]
    Body(String),
    #[error("`{0}` is no duration such as `24h`")]
    Lasts(String),
    #[error("`{0}` is no id of a revocation")]
    Id(String),
    #[error("there is no upstream `{0}`")]
    Upstream(String),
    #[error(
        "tenants aren't known here: `policy.pathTemplate` has no `{{tenant}}`, and there is no `delegation`"
    )]
    Tenants,
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// The API's routes, behind their guard.
pub(super) fn routes(desk: DeskPlace, guard: Guard) -> Router {
    Router::new()
        .route("/revocations", get(list).post(revoke))
        .route("/revocations/{id}", delete(lift))
        .route("/upstreams", get(upstreams::list))
        .route("/upstreams/{name}/reset", post(upstreams::reset))
        .with_state(desk)
        .layer(DefaultBodyLimit::max(LONGEST))
        .layer(from_fn_with_state(guard, admit))
}

async fn list(State(place): State<DeskPlace>) -> Result<Response, Fault> {
    let register = &place.get().ok_or(Fault::Starting)?.revocations;
    let current = register.current();
    let shown: Vec<_> = current.entries().map(|entry| Shown::of(entry)).collect();
    let (known, kept) = (current.is_known(), kept(register.keeping()));
    Ok(Json(json!({ "known": known, "kept": kept, "revocations": shown })).into_response())
}

async fn revoke(
    State(place): State<DeskPlace>,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Result<Response, Fault> {
    let desk = place.get().ok_or(Fault::Starting)?;
    let Json(asked) = asked.map_err(|rejection| Fault::Body(rejection.body_text()))?;
    let subject = Subject::parse(&asked.kind, &asked.value)?;
    if subject.what() == What::Tenant && !(desk.knows_tenants)() {
        return Err(Fault::Tenants);
    }
    let until = match asked.lasts {
        None => None,
        Some(text) => match humantime::parse_duration(&text) {
            Ok(lasts) => Some(Clock.unix().saturating_add(lasts).as_secs()),
            Err(_) => return Err(Fault::Lasts(text)),
        },
    };
    let register = Arc::clone(&desk.revocations);
    // To its end, also when whoever asked doesn't wait for it.
    let revoking =
        tokio::spawn(
            async move { register.revoke(subject, &asked.reason, &asked.by, until).await },
        );
    let revoked = revoking.await.map_err(|_| Fault::Starting)??;
    let kept = if revoked.kept { kept(desk.revocations.keeping()) } else { "not yet" };
    let shown = Shown { kept: Some(kept), ..Shown::of(&revoked.revocation) };
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

async fn lift(State(place): State<DeskPlace>, Path(id): Path<String>) -> Result<Response, Fault> {
    let register = Arc::clone(&place.get().ok_or(Fault::Starting)?.revocations);
    let Ok(id) = Uuid::try_parse(&id) else { return Err(Fault::Id(id)) };
    let lifting = tokio::spawn(async move { register.lift(id).await });
    let lifted = lifting.await.map_err(|_| Fault::Starting)??;
    Ok(Json(Shown::of(&lifted)).into_response())
}

/// How far what is revoked outlives this process.
fn kept(keeping: Keeping) -> &'static str {
    match keeping {
        Keeping::Memory => "memory",
        Keeping::File => "file",
        Keeping::Shared => "shared",
    }
}

impl Shown {
    fn of(revocation: &Revocation) -> Self {
        Self {
            id: revocation.id,
            kind: revocation.subject.what().as_str(),
            value: revocation.subject.value().into_owned(),
            reason: revocation.reason.clone(),
            by: revocation.by.clone(),
            at: time(revocation.at),
            until: revocation.until.map(time),
            kept: None,
        }
    }
}

/// RFC 3339, in UTC.
fn time(seconds: u64) -> String {
    // The last second that has four digits for its year.
    let seconds = seconds.min(253_402_300_799);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::Body(_) | Self::Lasts(_) | Self::Id(_) | Self::Tenants | Self::Subject(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Upstream(_) => StatusCode::NOT_FOUND,
            Self::Change(error) => match error {
                ChangeError::Text(_) | ChangeError::Over => StatusCode::BAD_REQUEST,
                ChangeError::Unknown(_) => StatusCode::NOT_FOUND,
                ChangeError::Full => StatusCode::CONFLICT,
                ChangeError::Store(_) | ChangeError::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
            },
        };
        (status, Json(json!({ "error": self.to_string() }))).into_response()
    }
}
