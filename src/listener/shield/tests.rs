use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn shield(connections: usize, new_per_second: u32, loopback: bool) -> Shield {
    let new_per_second = NonZeroU32::new(new_per_second).unwrap();
    Shield::new(Settings { connections, new_per_second, loopback }, Metrics::new(), "in")
}

fn block(text: &str) -> Block {
    Block::of(text.parse().unwrap())
}

#[test]
fn an_address_is_an_ipv4_address_or_a_64() {
    for (one, other, same) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ("2001:db8:0:1::1", "2001:db9:0:1::1", false),
        // No IPv4 address, though the digits are there.
        ("192.0.2.1", "::192.0.2.1", false),
        ("192.0.2.1", "2001:db8::ffff:192.0.2.1", false),
    ] {
        assert_eq!(block(one) == block(other), same, "{one} {other}");
    }
}

#[tokio::test]
async fn a_host_with_a_whole_network_is_one_address() {
    let shield = shield(1000, 10, false);
    let mut accepted = 0;
    let began = Clock.instant();
    for host in 1..=100 {
        let address: IpAddr = format!("2001:db8:0:1::{host:x}").parse().unwrap();
        let address = SocketAddr::from((address, 40_000));
        accepted += u64::from(shield.should_accept(Some(&address)).await);
    }
    // Ten at once, and one more for each tenth of a second that this took.
    let most = 11 + u64::try_from(began.elapsed().as_millis() / 100).unwrap();
    assert!((10..=most).contains(&accepted), "{accepted}");
    assert!(shield.should_accept(Some(&"[2001:db8:0:2::1]:1".parse().unwrap())).await);
    assert!(shield.should_accept(Some(&"192.0.2.1:1".parse().unwrap())).await);
}

#[tokio::test]
async fn loopback_counts_only_where_it_is_said_to() {
    for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let address: SocketAddr = address.parse().unwrap();
        for (loopback, second) in [(false, true), (true, false)] {
            let shield = shield(1, 1000, loopback);
            assert!(shield.should_accept(Some(&address)).await);
            assert_eq!(shield.should_accept(Some(&address)).await, second, "{address}");
            assert_eq!(shield.opened(Some(&address)).is_some(), loopback);
        }
    }
    // Gone before anybody could ask who it was.
    assert!(shield(1, 1, true).should_accept(None).await);
}

#[test]
fn what_opens_counts_until_it_is_open_or_overdue() {
    let mut taken = Taken::default();
    let (a, b) = (block("192.0.2.1"), block("192.0.2.2"));
    let start = Clock.instant();
    assert_eq!(taken.begin(a, start, 2), Ok(()));
    assert_eq!(taken.begin(a, start + SECOND, 2), Ok(()));
    assert_eq!(taken.begin(a, start + SECOND, 2), Err(Reason::Connections));
    assert_eq!(taken.begin(b, start + SECOND, 2), Ok(()), "another address");
    assert_eq!(taken.begin(a, start + HANDSHAKE - SECOND, 2), Err(Reason::Connections));
    assert_eq!(taken.begin(a, start + HANDSHAKE, 2), Ok(()), "the first must be over");
    assert_eq!(taken.opening, 3);
    taken.sweep(start + HANDSHAKE + SECOND);
    assert_eq!((taken.opening, taken.blocks.len()), (1, 1));
    taken.sweep(start + HANDSHAKE + HANDSHAKE);
    assert_eq!((taken.opening, taken.blocks.len()), (0, 0));
}

#[test]
fn what_is_open_counts_until_it_is_closed() {
    let shield = shield(2, 1000, false);
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let block = Block::of(address.ip());
    let now = Clock.instant();
    let mut open = Vec::new();
    for _ in 0..2 {
        assert_eq!(shield.admit(block, now), Ok(()));
        open.extend(shield.opened(Some(&address)));
    }
    let later = now + 2 * HANDSHAKE;
    assert_eq!(shield.admit(block, later), Err(Reason::Connections));
    shield.sweep(later);
    assert_eq!(shield.admit(block, later), Err(Reason::Connections));
    open.pop();
    assert_eq!(shield.admit(block, later), Ok(()));
    open.pop();
    shield.sweep(later + HANDSHAKE);
    let taken = shield.taken();
    assert_eq!((taken.opening, taken.blocks.len()), (0, 0));
}

#[test]
fn memory_is_bounded_whoever_comes() {
    let mut taken = Taken::default();
    let now = Clock.instant();
    for number in 0..u64::try_from(2 * MOST_OPENING).unwrap() {
        assert_eq!(taken.begin(Block::V6(number), now, 1), Ok(()));
    }
    assert_eq!((taken.opening, taken.blocks.len()), (MOST_OPENING, MOST_OPENING));
    // Those that are known are held to their limit all the same.
    assert_eq!(taken.begin(Block::V6(0), now, 1), Err(Reason::Connections));
    taken.sweep(now + HANDSHAKE);
    assert_eq!((taken.opening, taken.blocks.len()), (0, 0));
}
