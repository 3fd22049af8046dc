//! Other spellings of governed names.
//!
//! Some JSON readers match members without regard to case, by Unicode folding (`ſ` is an `s`, `K`
//! is a `k`), or cut a key at its first NUL (CVE-2026-27896, GO-2026-4770). What such a reader
//! takes for `name` must not pass us as a stranger.

/// Whether a lenient reader could take `key` for one of `names`, although it is none of them.
pub(crate) fn is_variant(key: &str, names: &[&str]) -> bool {
    if names.contains(&key) {
        return false;
    }
    if key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return names.iter().any(|name| name.eq_ignore_ascii_case(key));
    }
    let cut = key.split('\0').next().unwrap_or(key);
    names.iter().any(|name| {
        let name = || name.chars().flat_map(fold);
        name().eq(visible(key).flat_map(fold)) || name().eq(visible(cut).flat_map(fold))
    })
}

fn visible(key: &str) -> impl Iterator<Item = char> {
    key.chars().filter(|character| !is_ignorable(*character))
}

/// Upper case first: it joins what has a common capital, such as `s` and `ſ`.
fn fold(character: char) -> impl Iterator<Item = char> {
    character.to_uppercase().flat_map(char::to_lowercase)
}

/// Characters that a reader may drop or a human may not see.
fn is_ignorable(character: char) -> bool {
    character.is_control()
        || character.is_whitespace()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::is_variant;

    const NAMES: &[&str] = &["name", "taskId", "params", "io.modelcontextprotocol/protocolVersion"];

    #[test]
    fn variants_are_found() {
        for key in [
            "Name",
            "NAME",
            "taskid",
            "tas\u{212a}Id",
            "param\u{17f}",
            "name\0",
            "name\0x",
            "Name\0x",
            "\0name",
            "na\0me",
            "name ",
            "\tname",
            "na\u{200b}me",
            "\u{feff}name",
            "name\u{fe0f}",
            "task\u{131}d",
            "tas\u{212a}\u{131}\u{200d}d\0tail",
            "IO.modelcontextprotocol/protocolversion",
        ] {
            assert!(is_variant(key, NAMES), "{key:?}");
        }
    }

    #[test]
    fn other_names_are_free() {
        for key in ["name", "names", "nam", "title", "", "na-me", "na_me", "n\u{430}me", "id"] {
            assert!(!is_variant(key, NAMES), "{key:?}");
        }
    }
}
