//! A development CA and the SVIDs of the demo, as PEM files.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use super::{DemoError, TRUST_DOMAIN};

/// Mints `ca.pem`, and a certificate and key for Lictor and each caller.
pub(super) fn all(home: &Path) -> Result<(), DemoError> {
    let key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name = named("Lictor demo CA");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.subject_alt_names = vec![SanType::URI(format!("spiffe://{TRUST_DOMAIN}").try_into()?)];
    write(home, "ca.pem", &ca.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(ca, key);
    for (name, path) in
        [("lictor", "lictor"), ("reader", "agent/reader"), ("writer", "agent/writer")]
    {
        let key = KeyPair::generate()?;
        let svid = svid(path)?.signed_by(&key, &issuer)?;
        write(home, &format!("{name}.pem"), &svid.pem())?;
        write_key(home, &format!("{name}.key"), &key.serialize_pem())?;
    }
    Ok(())
}

/// A leaf by the rules of X509-SVID.md §4: one URI, no CA, critical key usage. `127.0.0.1` is there for
/// curl, which knows nothing of SPIFFE.
fn svid(path: &str) -> Result<CertificateParams, DemoError> {
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name = named("Lictor demo");
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    leaf.subject_alt_names = vec![
        SanType::URI(format!("spiffe://{TRUST_DOMAIN}/{path}").try_into()?),
        SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()),
    ];
    Ok(leaf)
}

/// OpenSSL takes a certificate for self-signed whose issuer has the name of its subject, and two without a
/// name have the same.
fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn write(home: &Path, name: &str, text: &str) -> Result<(), DemoError> {
    let path = home.join(name);
    fs::write(&path, text).map_err(|source| DemoError::File { path, source })
}

fn write_key(home: &Path, name: &str, text: &str) -> Result<(), DemoError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = home.join(name);
    let created = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
    created
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|source| DemoError::File { path, source })
}
