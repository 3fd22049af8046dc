//! The headers that bear on what a message means.

use std::collections::BTreeSet;

use http::{
    HeaderMap,
    header::{AUTHORIZATION, CONTENT_TYPE},
};

use super::fault;
use crate::protocol::{DecodeError, Era, Fault, media};

const VERSION: &str = "a2a-version";
/// Version 0.3 has the second; SDKs send both.
const EXTENSIONS: [&str; 2] = ["a2a-extensions", "x-a2a-extensions"];

/// Headers in which each of the values that matter occurs once at most.
pub(super) struct Head<'a> {
    headers: &'a HeaderMap,
    /// What `A2A-Version` says; empty counts as absent.
    pub(super) version: Option<Box<str>>,
    /// The era that the version belongs to, if it is of any that is known.
    named: Option<Era>,
}

impl<'a> Head<'a> {
    /// Reads the headers. `query` is the version that the query names, which has to be the same.
    pub(super) fn read(headers: &'a HeaderMap, query: Option<&str>) -> Result<Self, DecodeError> {
        for name in [VERSION, AUTHORIZATION.as_str(), CONTENT_TYPE.as_str()] {
            if headers.get_all(name).iter().nth(1).is_some() {
                let detail = format!("repeated header `{name}`").into();
                return Err(DecodeError { detail, ..fault(Fault::Invalid, Era::V03, "") });
            }
        }
        let header = headers.get(VERSION).map(|value| value.as_bytes().trim_ascii());
        let header = header.filter(|version| !version.is_empty());
        let query = query.filter(|version| !version.is_empty());
        let version = match (header, query) {
            (Some(header), Some(query)) if header != query.as_bytes() => {
                let detail = "`A2A-Version` in header and query differ";
                return Err(fault(Fault::Version, Era::V03, detail));
            }
            (Some(version), _) => Some(version),
            (None, query) => query.map(str::as_bytes),
        };
        let Some(version) = version else {
            return Ok(Self { headers, version: None, named: None });
        };
        let version = std::str::from_utf8(version)
            .ok()
            .filter(|version| version.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| fault(Fault::Version, Era::V03, "`A2A-Version` is not visible ASCII"))?;
        Ok(Self { headers, version: Some(version.into()), named: era_of(version) })
    }

    /// The era as far as the head tells; without a version it is the earlier one (A2A 1.0 §3.6).
    pub(super) fn era(&self) -> Era {
        match (self.named, &self.version) {
            (Some(era), _) => era,
            (None, Some(_)) => Era::V10,
            (None, None) => Era::V03,
        }
    }

    /// What is asked for has to be of the version that the head names, if it names one. Agents that
    /// serve both eras go by the method alone, others by the header.
    pub(super) fn check_era(&self, era: Era) -> Result<(), DecodeError> {
        if self.version.is_none() || self.named == Some(era) {
            return Ok(());
        }
        let detail = "`A2A-Version` is none that has such a call";
        Err(DecodeError { requested: self.version.clone(), ..fault(Fault::Version, era, detail) })
    }

    /// The media type has to be one of these.
    pub(super) fn check_media_type(&self, names: &[&str], era: Era) -> Result<(), DecodeError> {
        media::check_json(self.headers, names)
            .map_err(|detail| fault(Fault::MediaType, era, detail))
    }

    /// The extensions that are asked for; lists in one header or in several.
    pub(super) fn extensions(&self) -> Result<BTreeSet<Box<str>>, DecodeError> {
        let mut extensions = BTreeSet::new();
        for name in EXTENSIONS {
            for value in self.headers.get_all(name) {
                let value = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                    fault(Fault::Invalid, self.era(), "`A2A-Extensions` is not UTF-8")
                })?;
                let listed = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                extensions.extend(listed.map(Box::from));
            }
        }
        Ok(extensions)
    }
}

/// `Major.Minor`; a patch is passed over, and so is a missing minor number.
fn era_of(version: &str) -> Option<Era> {
    let numbers = version.split('.');
    let plain = numbers.clone().count() <= 3
        && numbers.clone().all(|number| {
            (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
        });
    match numbers.clone().next().filter(|_| plain)? {
        "0" => Some(Era::V03),
        "1" => Some(Era::V10),
        _ => None,
    }
}
