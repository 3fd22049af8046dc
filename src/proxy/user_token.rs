//! From the token of a user that a call brings to the one that its upstream is sent.
//!
//! The step comes after the permit, so that the token service hears of no call that is refused, and before the
//! intent, so that a call without a token leaves none open. It may wait for the service; what was found
//! before the wait is looked at again after it. Of the header, one reading is possible or the call is
//! refused; where no tokens are exchanged, nobody looks at it.

use std::pin::pin;

use http::{HeaderMap, header::AUTHORIZATION};
use pingora::protocols::http::ServerSession;

use super::{Halt, Proxy, Read, card};
use crate::{
    denial::Denial,
    exchange::Exchange,
    upstream::{TokenError, UserToken},
};

impl Proxy {
    /// Learns for whom the call goes out.
    pub(super) async fn exchange_user_token(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &mut Read,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal), Some(permit)) =
            (&exchange.call, &exchange.principal, &exchange.permit)
        else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        read.on_behalf = served.upstream.on_behalf_of_nobody();
        // A card is the same for everybody, fetched for nobody, and where callers learn what they need.
        if read.on_behalf.is_some() || card::is_card(call) {
            return Ok(());
        }
        let carried = carried(&session.req_header().headers)?;
        let clock = self.shared.record.clock;
        let started = clock.instant();
        let exchanged = {
            let exchanging = pin!(served.upstream.on_behalf(permit, principal, carried));
            let mut recall = self.recall((call, principal, &exchange.behalf), served);
            tokio::select! { biased;
                denial = recall.recalled() => {
                    exchange.stage = Some("revocation");
                    return Err(denial.into());
                }
                exchanged = self.while_wanted(session, exchanging) => exchanged?,
            }
        };
        let on_behalf = exchanged.map_err(|error| match error {
            TokenError::Missing => Denial::UserTokenRequired,
            TokenError::Refused => Denial::TokenRefused,
            TokenError::Unavailable => Denial::TokenUnavailable,
        })?;
        self.still_believed(read.peer.as_deref())?;
        let judged_by = exchange.policy_version.as_deref().unwrap_or_default();
        let parties = (call, principal, &exchange.behalf);
        if let Err((version, refusal)) =
            self.still_permitted(parties, served, &read.owned, judged_by)
        {
            exchange.policy_version = Some(version);
            return Err(exchange.refused(refusal).into());
        }
        exchange.token_wait = clock.instant().saturating_duration_since(started);
        read.on_behalf = Some(on_behalf);
        Ok(())
    }
}

/// The token in `Authorization: Bearer …` (RFC 6750 §2.1). Credentials of another scheme are none of a user's.
fn carried(headers: &HeaderMap) -> Result<Option<UserToken>, Denial> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(Denial::Framing("more than one Authorization header")),
    };
    let malformed = || Denial::Framing("the Authorization header can't be read");
    let value = value.to_str().map_err(|_| malformed())?;
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    UserToken::new(rest.trim_start_matches(' ')).map(Some).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn carries(values: &[&str]) -> Result<bool, ()> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        carried(&headers).map(|token| token.is_some()).map_err(|denial| match denial {
            Denial::Framing(_) => (),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_token_is_read_in_one_way_or_not_at_all() {
        let long = format!("Bearer {}", "a".repeat(16 << 10));
        let longer = format!("{long}a");
        for (values, expected) in [
            (&["Bearer abc"][..], Ok(true)),
            (&["bEARER a-._~+/9=="], Ok(true)),
            (&["Bearer  a"], Ok(true)),
            (&[&long], Ok(true)),
            (&[], Ok(false)),
            (&["Basic YTpi"], Ok(false)),
            (&["DPoP abc"], Ok(false)),
            (&["Bearerabc"], Ok(false)),
            (&["abc"], Ok(false)),
            (&[""], Ok(false)),
            (&["Bearer"], Err(())),
            (&["Bearer "], Err(())),
            (&["Bearer =="], Err(())),
            (&["Bearer a=b"], Err(())),
            (&["Bearer a b"], Err(())),
            (&["Bearer a,b"], Err(())),
            (&["Bearer a, Bearer b"], Err(())),
            (&["Bearer \ta"], Err(())),
            (&["Bearer \"a\""], Err(())),
            (&["Bearer ä"], Err(())),
            (&[&longer], Err(())),
            (&["Bearer a", "Bearer a"], Err(())),
            (&["Bearer a", "Basic YTpi"], Err(())),
            (&["Basic YTpi", "Basic YTpi"], Err(())),
        ] {
            assert_eq!(carries(values), expected, "{values:?}");
        }
    }
}
