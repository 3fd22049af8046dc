//! A scanner that is slow and simple, and the law that the fast one takes exactly what it takes.

use std::collections::HashSet;

use proptest::{prelude::*, sample::Index};

use super::{Limits, nearly_json, scan, trees};

/// Whether the text is what [`scan`] promises to take, with the usual limits.
fn accepts(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut rest = Rest(text);
    rest.value(0).is_some() && rest.skip_space().0.is_empty()
}

/// What is still to be read. Each step takes its piece off the front; `None` is a refusal.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.skip_space().0.chars().next()? {
            '{' if depth < Limits::default().depth => self.object(depth + 1),
            '[' if depth < Limits::default().depth => self.array(depth + 1),
            '"' => self.string().map(drop),
            't' => self.take("true"),
            'f' => self.take("false"),
            'n' => self.take("null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.take("{")?;
        if self.skip_space().take("}").is_some() {
            return Some(());
        }
        let mut keys = HashSet::new();
        loop {
            let key = self.skip_space().string()?;
            keys.insert(key).then_some(())?;
            self.skip_space().take(":")?;
            self.value(depth)?;
            if self.skip_space().take("}").is_some() {
                return Some(());
            }
            self.take(",")?;
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take("[")?;
        if self.skip_space().take("]").is_some() {
            return Some(());
        }
        loop {
            self.value(depth)?;
            if self.skip_space().take("]").is_some() {
                return Some(());
            }
            self.take(",")?;
        }
    }

    fn string(&mut self) -> Option<String> {
        self.take("\"")?;
        let mut units = Vec::new();
        loop {
            match self.char()? {
                '"' => return String::from_utf16(&units).ok(),
                '\\' => units.push(match self.char()? {
                    'b' => 0x08,
                    'f' => 0x0c,
                    'n' => 0x0a,
                    'r' => 0x0d,
                    't' => 0x09,
                    'u' => self.hex_unit()?,
                    letter @ ('"' | '\\' | '/') => letter as u16,
                    _ => return None,
                }),
                letter if letter < ' ' => return None,
                letter => units.extend_from_slice(letter.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn hex_unit(&mut self) -> Option<u16> {
        let digits: Option<Vec<u32>> = (0..4).map(|_| self.char()?.to_digit(16)).collect();
        Some(digits?.iter().fold(0, |unit, digit| unit * 16 + *digit as u16))
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take("-");
        if self.take("0").is_none() {
            self.digits()?;
        }
        if self.take(".").is_some() {
            self.digits()?;
        }
        if self.take("e").or_else(|| self.take("E")).is_some() {
            let _ = self.take("+").or_else(|| self.take("-"));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let rest = self.0.trim_start_matches(|letter: char| letter.is_ascii_digit());
        (rest.len() < self.0.len()).then(|| self.0 = rest)
    }

    fn skip_space(&mut self) -> &mut Self {
        self.0 = self.0.trim_start_matches([' ', '\t', '\r', '\n']);
        self
    }

    fn take(&mut self, piece: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(piece)?;
        Some(())
    }

    fn char(&mut self) -> Option<char> {
        let mut letters = self.0.chars();
        let letter = letters.next()?;
        self.0 = letters.as_str();
        Some(letter)
    }
}

/// One way to spoil a text, or not quite.
#[derive(Clone, Debug)]
enum Change {
    Replace(Index, u8),
    Insert(Index, &'static str),
    Remove(Index),
    /// Copies some bytes to another place, as a key that stands twice.
    Copy(Index, Index, Index),
    Cut(Index),
}

fn changes() -> impl Strategy<Value = Change> {
    let pieces = vec![
        "\"", "\\", ",", ":", "{", "}", "[", "]", " ", "\n", "\r\t", "0", "-", ".", "e", "1", "\0",
        "\u{1f}", "\u{7f}", "é", "\\u", "\\ud83d", "\\ude00", "\\u0061", "\"\":", ",\"a\":1",
        "true",
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        (any::<Index>(), prop::sample::select(pieces))
            .prop_map(|(at, piece)| Change::Insert(at, piece)),
        any::<Index>().prop_map(Change::Remove),
        any::<[Index; 3]>().prop_map(|[from, to, at]| Change::Copy(from, to, at)),
        any::<Index>().prop_map(Change::Cut),
    ]
}

fn change(text: &mut Vec<u8>, change: &Change) {
    let len = text.len() + 1;
    match change {
        Change::Replace(at, byte) => {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = *byte;
            }
        }
        Change::Insert(at, piece) => {
            let at = at.index(len);
            text.splice(at..at, piece.bytes());
        }
        Change::Remove(at) => {
            if !text.is_empty() {
                text.remove(at.index(text.len()));
            }
        }
        Change::Copy(from, to, at) => {
            let (from, to) = (from.index(len), to.index(len));
            let copied = text[from.min(to)..from.max(to)].to_vec();
            let at = at.index(len);
            text.splice(at..at, copied);
        }
        Change::Cut(at) => text.truncate(at.index(len)),
    }
}

/// Objects with few or many keys of all lengths, some of which may be the same.
fn objects() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        "[ab]{0,3}",
        "[a-z]{4,20}",
        "(name|argument|tool-)[0-9]{0,2}",
        "[a-c]{0,9}(\\\\u006[1-3]|\\\\n|é|😀)[a-c]{0,9}",
    ];
    prop::collection::vec(key, 0..40).prop_map(|keys| {
        let members: Vec<_> = keys.iter().map(|key| format!("\"{key}\":0")).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn agree(text: &[u8]) -> Result<(), TestCaseError> {
    let outcome = scan(text, Limits::default()).map(drop);
    prop_assert_eq!(outcome.is_ok(), accepts(text), "{:?}: {}", outcome, text.escape_ascii());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_scanner_takes_what_the_reference_takes(
        tree in trees(),
        pretty: bool,
        edits in prop::collection::vec(changes(), 0..4),
    ) {
        let text = if pretty { format!("{tree:#}") } else { tree.to_string() };
        let mut text = text.into_bytes();
        agree(&text)?;
        for edit in &edits {
            change(&mut text, edit);
            agree(&text)?;
        }
    }

    #[test]
    fn keys_are_the_same_for_the_scanner_and_the_reference(
        object in objects(),
        edits in prop::collection::vec(changes(), 0..3),
    ) {
        let mut text = object.into_bytes();
        agree(&text)?;
        for edit in &edits {
            change(&mut text, edit);
            agree(&text)?;
        }
    }

    #[test]
    fn near_json_is_the_same_for_the_scanner_and_the_reference(text in nearly_json()) {
        agree(text.as_bytes())?;
    }
}

#[test]
fn the_corpus_is_the_same_for_the_scanner_and_the_reference() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/json");
    let mut seen = 0;
    for file in std::fs::read_dir(corpus).expect("corpus") {
        let text = std::fs::read(file.expect("entry").path()).expect("readable");
        agree(&text).expect("agreement");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}
