//! A certificate authority for tests: good SVIDs, and every kind of bad one.
//!
//! Uses nothing of the crate, so that unit tests can include it too (`#[path = …]`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The root of one trust domain.
pub(crate) struct Ca {
    pub(crate) domain: String,
    pub(crate) root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate chain with its key.
pub(crate) struct Credential {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

/// Where [`Credential::write`] put things.
pub(crate) struct Written {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Trust domain → its roots.
    pub(crate) bundles: BTreeMap<String, PathBuf>,
}

impl Ca {
    pub(crate) fn new(domain: &str) -> Self {
        Self::expiring(domain, 86_400)
    }

    /// A root that is valid for so many seconds from now.
    pub(crate) fn expiring(domain: &str, seconds: u64) -> Self {
        let mut params = ca_params(&format!("root of {domain}"));
        params.not_after = at(seconds);
        params.subject_alt_names = vec![uri(&format!("spiffe://{domain}"))];
        let key = KeyPair::generate().expect("key");
        let root = params.self_signed(&key).expect("root").der().clone();
        Self { domain: domain.to_owned(), root, issuer: Issuer::new(params, key) }
    }

    /// A good SVID for `spiffe://<domain><path>`, valid for an hour.
    pub(crate) fn svid(&self, path: &str) -> Credential {
        self.svid_for(path, 3600)
    }

    /// A good SVID that is valid for so many seconds.
    pub(crate) fn svid_for(&self, path: &str, seconds: u64) -> Credential {
        self.leaf(path, |params| params.not_after = at(seconds))
    }

    /// A leaf that was a good SVID before `change`.
    pub(crate) fn leaf(
        &self,
        path: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credential {
        self.leaf_of(KeyPair::generate().expect("key"), path, change)
    }

    /// The same with a key that isn't of the usual kind.
    pub(crate) fn leaf_of(
        &self,
        key: KeyPair,
        path: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credential {
        let mut params = leaf_params(&format!("spiffe://{}{path}", self.domain));
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).expect("leaf").der().clone();
        Credential { chain: vec![leaf], key }
    }

    /// A good SVID under an intermediate that was good before `change`.
    pub(crate) fn svid_via(
        &self,
        path: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credential {
        let mut params = ca_params("an intermediate");
        change(&mut params);
        let key = KeyPair::generate().expect("key");
        let link = params.signed_by(&key, &self.issuer).expect("intermediate").der().clone();
        let below = Self {
            domain: self.domain.clone(),
            root: self.root.clone(),
            issuer: Issuer::new(params, key),
        };
        let mut credential = below.svid(path);
        credential.chain.push(link);
        credential
    }

    pub(crate) fn root_pem(&self) -> String {
        pem("CERTIFICATE", &self.root)
    }

    /// Every way to get an SVID wrong: what it is, a word of the right reason to refuse it, and the
    /// certificate. The CA has to be that of `one.test`.
    pub(crate) fn bad(&self, other: &Self) -> Vec<(&'static str, &'static str, Credential)> {
        use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign, KeyEncipherment};
        let id = |path: &str| uri(&format!("spiffe://{}{path}", self.domain));
        let names =
            |names: Vec<SanType>| self.leaf("/bad", move |params| params.subject_alt_names = names);
        let usages = |usages: Vec<KeyUsagePurpose>| {
            self.leaf("/bad", move |params| params.key_usages = usages)
        };
        let long = format!("/{}", "a".repeat(2049 - "spiffe://".len() - self.domain.len() - 1));
        let dns = SanType::DnsName(
            format!("spiffe://{}/bad", self.domain).as_str().try_into().expect("ASCII"),
        );
        vec![
            ("no names", "0 URI names", names(vec![])),
            ("only a DNS name that looks like an ID", "0 URI names", names(vec![dns])),
            ("two IDs", "2 URI names", names(vec![id("/a"), id("/b")])),
            ("an ID and another URI", "2 URI names", names(vec![id("/a"), uri("https://td/a")])),
            ("another URI and an ID", "2 URI names", names(vec![uri("https://td/a"), id("/a")])),
            (
                "another scheme",
                "no SPIFFE ID",
                names(vec![uri(&format!("https://{}/a", self.domain))]),
            ),
            ("no path", "no SPIFFE ID", names(vec![id("")])),
            ("root path", "no SPIFFE ID", names(vec![id("/")])),
            ("trailing slash", "no SPIFFE ID", names(vec![id("/a/")])),
            ("empty segment", "no SPIFFE ID", names(vec![id("/a//b")])),
            ("dot segment", "no SPIFFE ID", names(vec![id("/a/../b")])),
            ("percent", "no SPIFFE ID", names(vec![id("/a%2eb")])),
            ("query", "no SPIFFE ID", names(vec![id("/a?b")])),
            ("upper-case domain", "no SPIFFE ID", names(vec![uri("spiffe://ONE.TEST/a")])),
            ("user", "no SPIFFE ID", names(vec![uri(&format!("spiffe://me@{}/a", self.domain))])),
            ("port", "no SPIFFE ID", names(vec![uri(&format!("spiffe://{}:1/a", self.domain))])),
            ("2049 bytes", "no SPIFFE ID", names(vec![id(&long)])),
            ("no key usage", "leaf's key usage", usages(vec![])),
            ("no digitalSignature", "leaf's key usage", usages(vec![KeyEncipherment])),
            ("keyCertSign", "leaf's key usage", usages(vec![DigitalSignature, KeyCertSign])),
            ("cRLSign", "leaf's key usage", usages(vec![DigitalSignature, CrlSign])),
            (
                "key usage not critical",
                "leaf's key usage",
                self.leaf("/bad", |params| {
                    params.key_usages = vec![];
                    // BIT STRING with digitalSignature.
                    let usage =
                        CustomExtension::from_oid_content(&[2, 5, 29, 15], vec![3, 2, 7, 0x80]);
                    params.custom_extensions = vec![usage];
                }),
            ),
            (
                "CA",
                "is a CA",
                self.leaf("/bad", |params| {
                    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                }),
            ),
            (
                "only clientAuth",
                "extended key usage",
                self.leaf("/bad", |params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                }),
            ),
            (
                "only serverAuth",
                "extended key usage",
                self.leaf("/bad", |params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                }),
            ),
            ("expired", "expired", self.leaf("/bad", |params| params.not_after = before(5))),
            ("not yet valid", "no path", self.leaf("/bad", |params| params.not_before = at(60))),
            (
                "intermediate is no CA",
                "intermediate",
                self.svid_via("/bad", |params| params.is_ca = IsCa::ExplicitNoCa),
            ),
            (
                "intermediate may not sign certificates",
                "intermediate",
                self.svid_via("/bad", |params| params.key_usages = vec![DigitalSignature]),
            ),
            (
                "signed by another CA of the same name",
                "no path",
                Self::new(&self.domain).svid("/bad"),
            ),
            (
                "an ID of this domain, signed by another domain's CA",
                "no path",
                other.leaf("/bad", |params| params.subject_alt_names = vec![id("/bad")]),
            ),
            ("a domain without a bundle", "no bundle", Self::new("nowhere.test").svid("/bad")),
        ]
    }
}

impl Credential {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    pub(crate) fn chain_pem(&self) -> String {
        self.chain.iter().map(|link| pem("CERTIFICATE", link)).collect()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Writes the files of an identity into a directory, each replaced in one step.
    pub(crate) fn write(&self, directory: &Path, trusted: &[&Ca]) -> Written {
        let mut bundles: BTreeMap<String, String> = BTreeMap::new();
        for ca in trusted {
            bundles.entry(ca.domain.clone()).or_default().push_str(&ca.root_pem());
        }
        let put = |name: &str, content: &str| {
            let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
            std::fs::write(&new, content).expect("written");
            std::fs::rename(&new, &path).expect("renamed");
            path
        };
        Written {
            certificate: put("svid.pem", &self.chain_pem()),
            key: put("key.pem", &self.key_pem()),
            bundles: bundles
                .into_iter()
                .map(|(domain, roots)| (domain.clone(), put(&format!("{domain}.pem"), &roots)))
                .collect(),
        }
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = before(60);
    params.not_after = at(86_400);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_params(id: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "workload");
    params.not_before = before(60);
    params.not_after = at(3600);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![uri(id)];
    params
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}

/// So many seconds from now.
pub(crate) fn at<T: From<SystemTime>>(seconds: u64) -> T {
    (now() + Duration::from_secs(seconds)).into()
}

fn before<T: From<SystemTime>>(seconds: u64) -> T {
    (now() - Duration::from_secs(seconds)).into()
}

#[expect(clippy::disallowed_methods, reason = "validity is made for the real clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = data_encoding::BASE64.encode(der);
    let lines: Vec<_> =
        base64.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
