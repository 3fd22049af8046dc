//! Where the bytes stand that end a plain string, or have no place in one.
//!
//! Classifying 64 bytes at once takes a fraction of what looking for the next such byte takes,
//! since strings are mostly short. One bit for each byte of a text then tells where a string ends.

use wide::u8x16;

const BLOCK: usize = 64;

/// Bytes that are classified by one instruction.
const LANE: usize = 16;

/// One bit for each byte of a text, and for the place behind it; set where there is a quotation
/// mark, a backslash, a control character, or nothing any more.
pub(super) struct Marks {
    blocks: Vec<u64>,
}

impl Marks {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let (whole, rest) = bytes.as_chunks::<BLOCK>();
        let mut blocks = Vec::with_capacity(whole.len() + 1);
        blocks.extend(whole.iter().map(marks));
        // What isn't there reads as NUL, a control character.
        let mut last = [0; BLOCK];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        blocks.push(marks(&last));
        Self { blocks }
    }

    /// The first offset from `at` on that is marked.
    #[inline(always)]
    pub(super) fn next(&self, at: usize) -> usize {
        match self.blocks.get(at / BLOCK).map(|marks| marks >> (at % BLOCK)) {
            Some(marks) if marks != 0 => at + marks.trailing_zeros() as usize,
            Some(_) | None => self.first_of(at / BLOCK + 1),
        }
    }

    /// The first quotation mark from `at` on that isn't escaped; the end of the text if there is none.
    /// `bytes` are those that the marks were made of.
    pub(super) fn next_quote(&self, bytes: &[u8], mut at: usize) -> usize {
        loop {
            at = self.next(at);
            match bytes.get(at) {
                Some(b'"') => return at,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return bytes.len(),
            }
        }
    }

    /// The first offset that is marked in `block` or after it.
    #[inline(never)]
    fn first_of(&self, mut block: usize) -> usize {
        while let Some(&marks) = self.blocks.get(block) {
            if marks != 0 {
                return block * BLOCK + marks.trailing_zeros() as usize;
            }
            block += 1;
        }
        block * BLOCK
    }
}

fn marks(block: &[u8; BLOCK]) -> u64 {
    let (lanes, _) = block.as_chunks::<LANE>();
    lanes.iter().enumerate().fold(0, |marks, (place, lane)| {
        let lane = u8x16::new(*lane);
        let is = |byte| lane.simd_eq(u8x16::splat(byte));
        let is_control = lane.simd_eq(lane.min(u8x16::splat(b' ' - 1)));
        let found = is(b'"') | is(b'\\') | is_control;
        marks | u64::from(found.to_bitmask()) << (LANE * place)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Marks;

    proptest! {
        #[test]
        fn marks_are_where_a_string_can_end(bytes in prop::collection::vec(
            prop_oneof![4 => Just(b'a'), 1 => Just(b'"'), 1 => Just(b'\\'), 1 => any::<u8>()],
            0..300,
        )) {
            let marks = Marks::of(&bytes);
            let ends = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
            for at in 0..=bytes.len() {
                let rest = &bytes[at..];
                let expected = rest.iter().position(|&byte| ends(byte)).unwrap_or(rest.len());
                prop_assert_eq!(marks.next(at), at + expected);
            }
        }

        #[test]
        fn long_stretches_are_stepped_over(len in 0_usize..1000, at in 0_usize..1000) {
            let marks = Marks::of(&vec![b'a'; len]);
            prop_assume!(at <= len);
            prop_assert_eq!(marks.next(at), len);
        }
    }
}
