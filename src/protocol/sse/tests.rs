use std::borrow::Cow;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Boundary, Event, Overlong, Splitter};

fn split(chunks: &[&[u8]]) -> (Vec<Event>, Bytes) {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk), &mut events).expect("within the limit");
    }
    (events, splitter.into_rest())
}

fn raw(events: &[Event]) -> Vec<&[u8]> {
    events.iter().map(|event| &event.raw()[..]).collect()
}

fn data(events: &[Event]) -> Vec<Option<Vec<u8>>> {
    events.iter().map(|event| event.data().map(Cow::into_owned)).collect()
}

#[test]
fn events_end_with_an_empty_line() {
    for (stream, expected, rest) in [
        ("data: 1\n\ndata: 2\n\n", vec!["data: 1\n\n", "data: 2\n\n"], ""),
        ("data: 1\r\n\r\ndata: 2\r\n\r\n", vec!["data: 1\r\n\r\n", "data: 2\r\n\r\n"], ""),
        ("data: 1\r\rdata: 2\r\r", vec!["data: 1\r\r", "data: 2\r\r"], ""),
        ("data: 1\r\n\ndata: 2\n\r\n", vec!["data: 1\r\n\n", "data: 2\n\r\n"], ""),
        (": ping\n\n", vec![": ping\n\n"], ""),
        ("id: 1\ndata:\n\n", vec!["id: 1\ndata:\n\n"], ""),
        ("retry: 50\n\nda", vec!["retry: 50\n\n"], "da"),
        ("\n\r\n\r", vec!["\n", "\r\n", "\r"], ""),
        ("data: 1\n", vec![], "data: 1\n"),
        ("", vec![], ""),
    ] {
        let (events, left) = split(&[stream.as_bytes()]);
        let expected: Vec<_> = expected.iter().map(|event| event.as_bytes()).collect();
        assert_eq!(raw(&events), expected, "{stream:?}");
        assert_eq!(left, rest, "{stream:?}");
    }
}

#[test]
fn data_follows_the_standard() {
    for (event, expected) in [
        ("data: a\n\n", Some("a")),
        ("data:a\n\n", Some("a")),
        ("data:  a\n\n", Some(" a")),
        ("data\n\n", Some("")),
        ("data:\ndata\ndata: b\n\n", Some("\n\nb")),
        ("data: a\r\ndata: b\r\n\r\n", Some("a\nb")),
        ("data: a\rdata: b\r\r", Some("a\nb")),
        ("event: x\ndata: a\nid: 1\ndata: b\n\n", Some("a\nb")),
        ("\u{feff}data: a\n\n", Some("a")),
        ("database: a\n\n", None),
        (" data: a\n\n", None),
        (": data: a\n\n", None),
        ("Data: a\n\n", None),
        ("id: 7\n\n", None),
    ] {
        let (events, _) = split(&[event.as_bytes()]);
        let expected = expected.map(|data| data.as_bytes().to_vec());
        assert_eq!(data(&events), [expected], "{event:?}");
    }
    // Only the first bytes of the stream can be a byte order mark.
    let (events, _) = split(&["data: a\n\n\u{feff}data: b\n\n".as_bytes()]);
    assert_eq!(data(&events), [Some(b"a".to_vec()), None]);
}

#[test]
fn names_are_looked_for_in_every_field() {
    for (event, named) in [
        ("event: endpoint\ndata: a\n\n", true),
        ("event:endpoint\r\n\r\n", true),
        ("data: a\revent: endpoint\r\r", true),
        ("event: endpoint\nevent: message\n\n", true),
        ("\u{feff}event: endpoint\n\n", true),
        ("event: Endpoint\n\n", false),
        ("event:  endpoint \n\n", true),
        ("event : endpoint\n\n", false),
        ("data: endpoint\n\n", false),
        (": event: endpoint\n\n", false),
    ] {
        let (events, _) = split(&[event.as_bytes()]);
        assert_eq!(events[0].is_named(b"endpoint"), named, "{event:?}");
    }
}

#[test]
fn ids_and_waits_follow_the_standard() {
    for (event, id, retry) in [
        ("id: 7\ndata: a\n\n", Some("7"), None),
        ("id:7\r\nid: 8\r\nretry: 250\r\n\r\n", Some("8"), Some(250)),
        ("id\n\n", Some(""), None),
        ("id: a\0b\nretry: 1s\n\n", None, None),
        ("retry:\n\n", None, None),
        ("retry: 99999999999999999999999\n\n", None, None),
        ("data: id: 1\n\n", None, None),
    ] {
        let (events, _) = split(&[event.as_bytes()]);
        assert_eq!(events[0].id(), id.map(str::as_bytes), "{event:?}");
        assert_eq!(events[0].retry(), retry, "{event:?}");
    }
}

#[test]
fn editing_data_keeps_every_other_line() {
    for (event, new, expected) in [
        ("data: a\n\n", "b", "data: b\n\n"),
        ("id: 1\r\ndata: a\r\n: c\r\n\r\n", "b", "id: 1\r\ndata: b\r\n: c\r\n\r\n"),
        ("data:a\nid: 1\ndata: b\n\n", "x", "data: x\nid: 1\n\n"),
        ("data: a\r\r", "b\nc", "data: b\rdata: c\r\r"),
        ("\u{feff}data: a\nretry: 1\n\n", "b", "\u{feff}data: b\nretry: 1\n\n"),
        ("data: a\n\n", "", "data: \n\n"),
        ("id: 1\n\n", "b", "id: 1\n\n"),
    ] {
        let (events, _) = split(&[event.as_bytes()]);
        assert_eq!(events[0].with_data(new.as_bytes()), expected, "{event:?}");
    }
}

#[test]
fn a_line_feed_after_the_end_is_not_kept_waiting() {
    let (events, rest) = split(&[b"data: 1\r\n\r", b"\ndata: 2\r\n\r", b"\n"]);
    assert_eq!(raw(&events), [&b"data: 1\r\n\r"[..], b"\n", b"data: 2\r\n\r", b"\n"]);
    assert_eq!(data(&events), [Some(b"1".to_vec()), None, Some(b"2".to_vec()), None]);
    assert_eq!(rest, "");
}

#[test]
fn whole_events_share_the_memory_of_their_chunk() {
    let chunk = Bytes::from_static(b"data: 1\n\ndata: 2\n\n");
    let mut events = Vec::new();
    Splitter::new(100).feed(chunk.clone(), &mut events).expect("within the limit");
    assert_eq!(events[0].raw().as_ptr(), chunk.as_ptr());
    assert_eq!(events[1].raw().as_ptr(), chunk[9..].as_ptr());
}

#[test]
fn overlong_events_are_refused_however_they_are_cut() {
    let stream = b"data: 1\n\ndata: 12345\n\n";
    for (limit, expected) in [(13, Ok(())), (12, Err(Overlong { limit: 12 }))] {
        for size in 1..=stream.len() {
            let mut splitter = Splitter::new(limit);
            let mut events = Vec::new();
            let outcome = stream
                .chunks(size)
                .try_for_each(|chunk| splitter.feed(Bytes::copy_from_slice(chunk), &mut events));
            assert_eq!(outcome, expected, "{limit} {size}");
            assert_eq!(events[0].raw(), "data: 1\n\n");
        }
    }
}

#[test]
fn a_boundary_knows_where_it_stands() {
    let mut boundary = Boundary::default();
    assert!(boundary.is_between());
    for (bytes, between) in [
        ("", true),
        ("d", false),
        ("ata: 1", false),
        ("\n", false),
        ("\n", true),
        ("\n", true),
        ("id: 1\n", false),
        ("\r", true),
        ("\n", true),
        ("data: 1\r\n", false),
        ("data: 2\r", false),
        ("\n", false),
        ("\r", true),
        ("data: 3\n\ndata: 4", false),
        ("\r\rdata: 5\n\n", true),
    ] {
        boundary.observe(bytes.as_bytes());
        assert_eq!(boundary.is_between(), between, "{bytes:?}");
    }
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "\n", "\r", "\r\n", "\n\n", "\r\n\r\n", "data: a", "data", ":", "id: 1", "\u{feff}", "é",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

/// What a browser would dispatch: the data of each event that has any.
fn reference(stream: &[u8]) -> Vec<Vec<u8>> {
    let text = std::str::from_utf8(stream).expect("UTF-8");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let mut dispatched = Vec::new();
    let mut buffer: Option<Vec<&str>> = None;
    for line in complete.split('\n') {
        if line.is_empty() {
            dispatched.extend(buffer.take().map(|lines| lines.join("\n").into_bytes()));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            buffer.get_or_insert_default().push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    dispatched
}

proptest! {
    #[test]
    fn splitting_is_the_same_at_every_cut(stream in streams(), cuts: Vec<prop::sample::Index>) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        let bytewise: Vec<_> = stream.chunks(1).collect();
        let expected = reference(&stream);
        for chunks in [chunks, bytewise, vec![&stream[..]]] {
            let (events, rest) = split(&chunks);
            let together = [&raw(&events).concat()[..], &rest].concat();
            prop_assert_eq!(&together, &stream);
            let data: Vec<_> = data(&events).into_iter().flatten().collect();
            prop_assert_eq!(&data, &expected);
            for event in &events {
                if let Some(data) = event.data() {
                    let edited = Event { raw: event.with_data(&data), place: event.place };
                    prop_assert_eq!(edited.data(), Some(data));
                }
            }
        }
    }
}
