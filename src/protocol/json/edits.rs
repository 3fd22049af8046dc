//! [`Edits`]: changes to a scanned text that leave every other byte as it was.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Changes to one text, in any order.
///
/// INVARIANT: changes don't overlap; what is inside a removed item isn't changed as well.
#[derive(Debug, Default)]
pub struct Edits(Vec<Edit>);

#[derive(Debug)]
struct Edit {
    span: Range<usize>,
    with: String,
}

impl Edits {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts `with` in the place of `span`, which may be empty.
    pub fn replace(&mut self, span: Range<usize>, with: impl Into<String>) {
        self.0.push(Edit { span, with: with.into() });
    }

    /// Removes items of a container, each with the comma on the side where it leaves a whole container.
    /// `items` are all of them in their order, with whether they stay.
    pub fn retain(&mut self, items: impl IntoIterator<Item = (Range<usize>, bool)>) {
        let mut items = items.into_iter().peekable();
        let mut kept = false;
        let mut previous_end = 0;
        while let Some((span, stays)) = items.next() {
            let end = span.end;
            if stays {
                kept = true;
            } else {
                let cut = match (kept, items.peek()) {
                    (true, _) => previous_end..end,
                    (false, Some((next, _))) => span.start..next.start,
                    (false, None) => span,
                };
                self.replace(cut, "");
            }
            previous_end = end;
        }
    }

    /// The text with the changes.
    pub fn apply(mut self, text: &[u8]) -> Bytes {
        self.0.sort_by_key(|edit| (edit.span.start, edit.span.end));
        let more: usize = self.0.iter().map(|edit| edit.with.len()).sum();
        let mut edited = BytesMut::with_capacity(text.len() + more);
        let mut at = 0;
        for edit in &self.0 {
            edited.extend_from_slice(text.get(at..edit.span.start).unwrap_or_default());
            edited.extend_from_slice(edit.with.as_bytes());
            at = edit.span.end;
        }
        edited.extend_from_slice(text.get(at..).unwrap_or_default());
        edited.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Limits, scan},
        *,
    };

    #[test]
    fn what_stays_is_a_whole_container() {
        for (text, stays, left) in [
            ("[1, 2 ,3]", "111", "[1, 2 ,3]"),
            ("[1, 2 ,3]", "011", "[2 ,3]"),
            ("[1, 2 ,3]", "101", "[1 ,3]"),
            ("[1, 2 ,3]", "110", "[1, 2]"),
            ("[1, 2 ,3]", "001", "[3]"),
            ("[1, 2 ,3]", "010", "[2]"),
            ("[1, 2 ,3]", "100", "[1]"),
            ("[ 1, 2 ,3 ]", "000", "[  ]"),
            ("[1]", "0", "[]"),
        ] {
            let document = scan(text.as_bytes(), Limits::default()).unwrap();
            let spans = document.root().elements().map(|element| element.span());
            let mut edits = Edits::default();
            edits.retain(spans.zip(stays.bytes().map(|stays| stays == b'1')));
            assert_eq!(edits.apply(text.as_bytes()), left, "{text} {stays}");
        }
    }

    #[test]
    fn what_is_put_in_comes_before_what_is_taken_out_behind_it() {
        let mut edits = Edits::default();
        edits.replace(2..4, "");
        edits.replace(2..2, ",9");
        edits.replace(1..2, "7");
        assert_eq!(edits.apply(b"[1,2]"), "[7,9]");
    }
}
