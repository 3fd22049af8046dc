//! How deep a statement nests, told before Cedar reads it.
//!
//! Cedar parses, checks and frees expressions by recursion, and a stack that overflows ends the process.
//! Not only brackets nest: `a || b || c` is `(a || b) || c` to it, and so are further `when`s. A bracket
//! takes it through every rule of its grammar, so it counts more than an operator.
//!
//! INVARIANT: [`nesting`] never tells less than the depth of Cedar's tree, counted in operators and
//! brackets. So it goes by bytes that no form of expression can do without.

use std::cmp::max;

use super::source::significant;

/// As deep a statement may nest. Cedar takes up to 5 KiB of stack for each level when optimised, of the 2 MiB
/// that a worker has; without optimisation it is ten times that, which overflows them from 55 levels on.
pub(super) const DEEPEST: usize = 100;

/// What a pair of brackets counts.
const BRACKETS: usize = 4;

/// Told with a statement that nests deeper.
pub(super) const HINT: &str =
    "write `[…].contains(…)` or `in […]` in place of a row of `||`, or several policies";

/// Nesting of a statement, from 0: that of the deepest of its elements, each with its row of operators, its
/// chain of members and the deepest of its brackets.
pub(super) fn nesting(statement: &str) -> usize {
    let mut open: Vec<Level> = vec![];
    let mut level = Level::default();
    let mut before = b' ';
    for (at, byte) in significant(statement) {
        match byte {
            b'(' | b'[' | b'{' => {
                if byte == b'{' {
                    level.operator();
                }
                open.push(std::mem::take(&mut level));
            }
            b')' | b']' | b'}' => {
                if let Some(outer) = open.pop() {
                    let inner = std::mem::replace(&mut level, outer).depth();
                    level.inner = max(level.inner, inner + BRACKETS);
                }
            }
            b',' => level.element(),
            b'+' | b'-' | b'*' => level.operator(),
            b'|' | b'&' if before == byte => level.operator(),
            // Of `if … then … else if … then …`, which needs no brackets.
            b't' if statement.get(at..).is_some_and(|rest| rest.starts_with("then")) => {
                level.operator();
            }
            b'.' | b'!' => level.chain += 1,
            _ => {}
        }
        before = byte;
    }
    while let Some(outer) = open.pop() {
        let inner = std::mem::replace(&mut level, outer).depth();
        level.inner = max(level.inner, inner + BRACKETS);
    }
    level.depth()
}

/// What stands between one pair of brackets, up to here.
#[derive(Default)]
struct Level {
    /// Operators of this element.
    row: usize,
    /// Members of members, since the last operator.
    chain: usize,
    longest_chain: usize,
    /// Deepest of the brackets in this element.
    inner: usize,
    /// Deepest of the elements before.
    deepest: usize,
}

impl Level {
    fn operator(&mut self) {
        self.row += 1;
        self.longest_chain = max(self.longest_chain, std::mem::take(&mut self.chain));
    }

    fn element(&mut self) {
        *self = Self { deepest: self.depth(), ..Self::default() };
    }

    fn depth(&self) -> usize {
        max(self.deepest, self.row + max(self.longest_chain, self.chain) + self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_in_brackets_and_operators() {
        for (statement, depth) in [
            ("permit(principal, action, resource);", 4),
            (r#"@id("((((.||") permit(principal, action, resource); // (((("#, 4),
            ("permit(principal, action, resource) when { a };", 5),
            ("permit(principal, action, resource) when { a } when { b || c };", 7),
            ("permit(principal, action, resource) when { a || b && !c || ((d)) };", 17),
            ("permit(principal, action, resource) when { a.b.c || a.d.e };", 8),
            ("permit(principal, action, resource) when { [a.b, c.d, -1, -2, 3 - 4].x };", 11),
            (
                "permit(principal, action, resource) when { if a then b else if c then d else e };",
                7,
            ),
            ("permit(principal, action, [[[", 16),
            ("}}}]])", 0),
        ] {
            assert_eq!(nesting(statement), depth, "{statement}");
        }
    }
}
