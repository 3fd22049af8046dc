use super::*;

fn cause(name: &str) -> Cause {
    let caller = SpiffeId::parse(&format!("spiffe://example.org/{name}")).unwrap();
    Cause { call_id: Uuid::now_v7(), caller, behalf: Behalf::default() }
}

fn marks(parents: &[&str], members: &[&str], names: &[&str]) -> Marks {
    let mut marks = Marks::default();
    for parent in parents {
        marks.trace_parent(parent);
    }
    for member in members {
        marks.members(member);
    }
    for name in names {
        marks.name(name);
    }
    marks
}

fn found(links: &Links, marks: &Marks, now: u64) -> (Rung, Vec<String>) {
    let linked = links.trace_back(marks, Duration::from_secs(now));
    let callers = linked.causes.iter().map(|cause| cause.caller.as_str());
    (linked.rung, callers.map(|id| id.rsplit('/').next().unwrap().to_owned()).collect())
}

fn all(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const A: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1111111111111111-01";
const B: &str = "00-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-1111111111111111-01";

#[test]
fn the_ladder_goes_from_exact_to_narrow() {
    let links = Arc::new(Links::default());
    let nothing = Marks::default();
    assert_eq!(found(&links, &nothing, 0), (Rung::Root, all(&[])));

    let a = links.enter(cause("a"), marks(&[A], &[], &["ctx-a"])).unwrap();
    assert_eq!(found(&links, &nothing, 0), (Rung::Single, all(&["a"])));

    let b = links.enter(cause("b"), marks(&[B], &[], &[])).unwrap();
    let c = links.enter(cause("c"), marks(&[B], &[], &[])).unwrap();
    b.name("ctx-b");
    let handle = format!("other=1,lictor={} ,x=2", a.handle());
    let property = format!("lictor={};p=1", c.handle());
    for (marks, rung, callers) in [
        (marks(&[], &[&handle], &[]), Rung::Handle, all(&["a"])),
        (marks(&[], &[&property], &[]), Rung::Handle, all(&["c"])),
        // The exact one wins over the others.
        (marks(&[B], &[&handle], &["ctx-b"]), Rung::Handle, all(&["a"])),
        (marks(&[A], &[], &["ctx-b"]), Rung::Trace, all(&["a"])),
        (marks(&[B], &[], &[]), Rung::Trace, all(&["b", "c"])),
        (marks(&[], &[], &["ctx-b"]), Rung::Context, all(&["b"])),
        (marks(&[], &[], &["ctx-a", "ctx-b"]), Rung::Context, all(&["a", "b"])),
        (marks(&[], &["lictor=0"], &["ctx-c"]), Rung::Ambient, all(&["a", "b", "c"])),
        (nothing.clone(), Rung::Ambient, all(&["a", "b", "c"])),
    ] {
        assert_eq!(found(&links, &marks, 0), (rung, callers), "{marks:?}");
    }

    // A handle, trace or name of what has ended leads nowhere.
    let (ended, stale) = (format!("lictor={}", a.handle()), marks(&[A], &[], &["ctx-a"]));
    drop(a);
    assert_eq!(found(&links, &marks(&[], &[&ended], &[]), 0).0, Rung::Ambient);
    assert_eq!(found(&links, &stale, 0).1, all(&["b", "c"]));
    drop((b, c));
    assert_eq!(found(&links, &marks(&[], &[&ended], &[]), 0), (Rung::Root, all(&[])));
}

#[test]
fn what_goes_on_without_its_caller_keeps_its_call_alive_for_a_while() {
    let links = Arc::new(Links::default());
    let a = links.enter(cause("a"), Marks::default()).unwrap();
    a.linger(Some(Duration::from_secs(100)));
    drop(a);
    assert_eq!(found(&links, &Marks::default(), 99), (Rung::Single, all(&["a"])));
    assert_eq!(found(&links, &Marks::default(), 100), (Rung::Root, all(&[])));

    let b = links.enter(cause("b"), Marks::default()).unwrap();
    b.linger(Some(Duration::from_secs(100)));
    b.linger(None);
    drop(b);
    assert_eq!(found(&links, &Marks::default(), 0), (Rung::Root, all(&[])));
}

#[test]
fn tasks_that_never_end_dont_fill_the_memory() {
    let links = Arc::new(Links::default());
    for _ in 0..MOST_LINGERING + 5 {
        let call = links.enter(cause("a"), Marks::default()).unwrap();
        call.linger(Some(Duration::from_secs(100)));
    }
    assert_eq!(links.table().calls.len(), MOST_LINGERING);
    assert_eq!(links.trace_back(&Marks::default(), Duration::ZERO).causes.len(), MOST_LINGERING);
}

#[test]
fn only_a_trace_parent_is_one() {
    for (value, fine) in [
        (A, true),
        ("cc-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1111111111111111-01-more", true),
        ("ff-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1111111111111111-01", false),
        ("00-00000000000000000000000000000000-1111111111111111-01", false),
        ("00-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-1111111111111111-01", false),
        ("00-aaaa-1111111111111111-01", false),
        ("", false),
    ] {
        assert_eq!(!marks(&[value], &[], &[]).traces.is_empty(), fine, "{value}");
    }
}
