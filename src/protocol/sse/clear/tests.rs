use bytes::Bytes;
use proptest::prelude::*;

use super::{Ambiguous, escaped, is_odd};
use crate::protocol::{
    mcp::server::may_ask,
    sse::{Event, Splitter},
};

fn split(chunks: &[&[u8]]) -> Vec<Event> {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk), &mut events).expect("within the limit");
    }
    events
}

/// What goes on of each event.
fn clear(chunks: &[&[u8]]) -> Vec<Result<Bytes, Ambiguous>> {
    let clear = |mut event: Event| event.clear().map(|()| event.raw().clone());
    split(chunks).into_iter().map(clear).collect()
}

#[test]
fn what_has_one_reading_goes_on_as_it_came() {
    for event in [
        "data: a\n\n",
        "data:a\r\n: a comment\r\nunknown-field: x\r\n\r\n",
        "id: 7\nevent: message\nretry: 500\ndata: {\"a\":\ndata: 1}\n\n",
        "data: é \u{201c}漢字\u{201d} \u{7f} \t\n\n",
        "data\n\n",
        "data:\ndata:  \n\n",
        ": data: a\n\n",
        "datas: a\nid\n\n",
        "\n",
        "\r\n",
    ] {
        let events = split(&[event.as_bytes()]);
        let mut clear = events[0].clone();
        assert_eq!(clear.clear(), Ok(()), "{event:?}");
        assert_eq!(clear.raw(), event, "{event:?}");
        assert_eq!(clear.raw().as_ptr(), events[0].raw().as_ptr(), "{event:?} was copied");
    }
}

#[test]
fn what_has_several_readings_is_written_anew_or_stays() {
    for (event, expected) in [
        // A line feed may still come.
        ("data: a\r\n\r", Some("data: a\r\n\r\n")),
        ("data: a\n\r", Some("data: a\n\r\n")),
        // Carriage returns alone end lines for some.
        ("data: a\rid: 1\r\r", Some("data: a\nid: 1\n\n")),
        (": c\rdata: \"\ndata: {\"method\":1}\n\n", None),
        ("data: a\r\r\n", Some("data: a\n\n")),
        // So do these.
        (": x\u{2028}data: {}\n\n", Some("")),
        (": x\u{85}data: {}\nid: 1\n\n", Some("id: 1\n\n")),
        ("data:1\u{2028}\n\n", None),
        (
            "data: {\"a\u{2028}\":\"\u{2029}\u{85}\"}\n\n",
            Some("data: {\"a\\u2028\":\"\\u2029\\u0085\"}\n\n"),
        ),
        ("data: \"\\\u{2028}\"\n\n", None),
        ("data: \"\u{b}\"\n\n", None),
        (": \u{c}\u{1c}\u{1d}\u{1e}\0\ndata:a\n\n", Some("data: a\n\n")),
        ("event: a\u{b}\ndata: 1\n\n", None),
        ("id: 1\u{0}2\ndata: 1\n\n", None),
        ("retry: \u{2028}\n\n", None),
        // Marks, of either kind, and several.
        ("\u{feff}data: a\n\n", Some("data: a\n\n")),
        ("ï»¿data: a\n\n", Some("data: a\n\n")),
        ("\u{feff}ï»¿\u{feff}data: a\r\n\r\n", Some("data: a\r\n\r\n")),
        ("\u{feff}data: \"\ndata: {\"method\":1}\n\n", None),
        (": c\n\u{feff}data: a\n\n", Some("")),
        // Names.
        (" data: a\n\n", Some("")),
        ("data : a\n\n", Some("")),
        ("Data: a\ndata: b\n\n", Some("data: b\n\n")),
        ("da\u{ad}ta: a\n\n", Some("")),
        (" \ndata: b\n\n", Some("data: b\n\n")),
        // Several lines that aren't one text.
        ("data: a\ndata: b\n\n", None),
        ("data: \"\ndata: {}\n\n", None),
        ("data: {\"a\":1,\ndata: \"a\":2}\n\n", None),
    ] {
        let expected = expected.map(Bytes::from).ok_or(Ambiguous);
        assert_eq!(clear(&[event.as_bytes()]), [expected], "{event:?}");
    }
}

#[test]
fn an_event_is_no_start_because_those_before_it_stay() {
    let events = clear(&["data: 1\n\n\u{feff}data: 2\n\nï»¿data: 3\n\n".as_bytes()]);
    assert_eq!(events, [Ok("data: 1\n\n".into()), Ok(Bytes::new()), Ok(Bytes::new())]);
}

#[test]
fn line_ends_may_be_cut_in_two() {
    let events = clear(&[b"data: 1\r\n\r", b"\ndata: 2\r", b"\n\r", b"data: 3\n\n"]);
    let expected = ["data: 1\r\n\r\n", "", "data: 2\r\n\r\n", "data: 3\n\n"];
    assert_eq!(events, expected.map(|event| Ok(event.into())));
}

/// A reader of streams, from the sources of one or made up.
#[derive(Debug)]
struct Reader {
    /// What ends a line, beside CR LF.
    ends: &'static str,
    /// What is dropped from the start.
    marks: &'static [&'static str],
    /// Whether names are taken for known ones in any case, with any space.
    lenient: bool,
    /// Whether a name without a colon is a field.
    bare: bool,
    /// Whether the last `data` line replaces those before.
    last: bool,
}

/// Of the standard, which browsers follow.
const STANDARD: Reader =
    Reader { ends: "\n\r", marks: &["\u{feff}"], lenient: false, bare: true, last: false };

const READERS: [Reader; 7] = [
    STANDARD,
    // The TypeScript SDKs of MCP: a decoder that drops a mark, and a parser that drops another one.
    Reader { marks: &["\u{feff}", "ï»¿"], ..STANDARD },
    // The Python SDK of MCP.
    Reader { marks: &[], ..STANDARD },
    // The Python SDK of A2A, and whoever splits with Python's own means.
    Reader {
        ends: "\n\r\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{85}\u{2028}\u{2029}",
        marks: &[],
        ..STANDARD
    },
    // The JavaScript SDK of A2A.
    Reader { ends: "\n", bare: false, ..STANDARD },
    Reader { ends: "\n\0", lenient: true, ..STANDARD },
    Reader { ends: "\n", marks: &[], last: true, ..STANDARD },
];

impl Reader {
    /// The data of each event that has any.
    fn read(&self, text: &str) -> Vec<String> {
        let mut text = text;
        for mark in self.marks {
            text = text.strip_prefix(mark).unwrap_or(text);
        }
        let text = text.replace("\r\n", "\n");
        let (mut dispatched, mut data) = (Vec::new(), None::<String>);
        let mut lines: Vec<_> = text.split(|end| self.ends.contains(end)).collect();
        lines.pop();
        for line in lines {
            if line.is_empty() || (self.lenient && line.trim().is_empty()) {
                dispatched.extend(data.take().filter(|data| !data.trim().is_empty()));
            }
            let (name, value) = match line.split_once(':') {
                Some((name, value)) => (name, value.strip_prefix(' ').unwrap_or(value)),
                None if self.bare => (line, ""),
                None => continue,
            };
            let is_data = match self.lenient {
                true => name
                    .trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
                    .eq_ignore_ascii_case("data"),
                false => name == "data",
            };
            if is_data {
                data = Some(match data {
                    Some(before) if !self.last => format!("{before}\n{value}"),
                    Some(_) | None => value.to_owned(),
                });
            }
        }
        dispatched
    }
}

fn streams() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\n",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\n\n",
        "\r\n\r\n",
        "\r\r",
        "data: ",
        "data: ",
        "\ndata:",
        "data",
        ":",
        " ",
        "id: 1",
        "event: x",
        "\u{feff}",
        "ï»¿",
        "\u{2028}",
        "\u{85}",
        "\u{b}",
        "\u{1c}",
        "\0",
        "Data: ",
        " data: ",
        "é",
        "{\"method\":1}",
        "{\"method\"",
        ":1}",
        "\"",
        "{\"a\":\"",
        "\"}",
        "{",
        "}",
        ",",
        "1",
        "\t",
        "\\",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn all_readers_find_the_same(stream in streams(), cut: prop::sample::Index) {
        let (before, after) = stream.as_bytes().split_at(cut.index(stream.len() + 1));
        let events = clear(&[before, after]);
        let went_on: Vec<u8> = events.into_iter().flatten().flatten().collect();
        let went_on = String::from_utf8(went_on).expect("UTF-8");
        let found = STANDARD.read(&went_on);
        for reader in &READERS {
            let theirs = reader.read(&went_on);
            if !reader.last {
                let bare = |data: &String| data.trim_start_matches('\n').to_owned();
                let ours: Vec<_> = found.iter().map(bare).collect();
                let theirs: Vec<_> = theirs.iter().map(bare).collect();
                prop_assert_eq!(theirs, ours, "{:?} {:?}", reader, went_on);
            }
            let asks = |found: &[String]| found.iter().any(|data| may_ask(data.as_bytes()));
            prop_assert!(!asks(&theirs) || asks(&found), "{:?} {:?}", reader, went_on);
        }
        // And it is what the standard finds in what came, where that is one text.
        for mut event in split(&[before, after]) {
            let came = event.data().map(|data| data.into_owned());
            let first = stream.as_bytes().starts_with(event.raw());
            if event.clear() == Ok(()) && !first && !event.raw().is_empty() {
                let came = came.map(|data| match is_odd(&data) {
                    true => escaped(&data).into_bytes(),
                    false => data,
                });
                prop_assert_eq!(event.data().map(|data| data.into_owned()), came);
            }
        }
    }

    #[test]
    fn what_was_made_clear_stays(stream in streams()) {
        for event in clear(&[stream.as_bytes()]).into_iter().flatten() {
            let again = clear(&[&event]);
            prop_assert!(again.iter().all(Result::is_ok));
            let again: Vec<u8> = again.into_iter().flatten().flatten().collect();
            prop_assert_eq!(&again, &event);
        }
    }
}
