//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that aren't the public internet (IANA special-purpose registry), and one that is but
/// answers machines of one cloud only.
const V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// What of 2000::/3, outside of which nothing of IPv6 is public, isn't either: protocol assignments with
/// Teredo, documentation, 6to4.
const V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether it is an address of the public internet, where whoever it belongs to has put it.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(ip) => is_public_v4(ip),
            None => {
                ip.segments().first().is_some_and(|first| first >> 13 == 1)
                    && !V6.iter().any(|(network, bits)| {
                        ip.to_bits() >> (128 - bits) == network.to_bits() >> (128 - bits)
                    })
            }
        },
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !V4.iter()
        .any(|(network, bits)| ip.to_bits() >> (32 - bits) == network.to_bits() >> (32 - bits))
}

/// The address of IPv4 that packets to this one go to: mapped (RFC 4291 §2.5.5.2), and what a resolver
/// makes in networks without IPv4 (RFC 6052 §2.1).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = ip.octets();
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}
