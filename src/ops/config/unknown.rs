//! Variables named like settings that are none: a setting misspelt, which must not be ignored in silence, or one of
//! another tool of the protocol, which is nothing to be warned of.
//!
//! The two are told apart by their distance from the settings there are. Only names are read here, never values.

use super::table::{SettingRow, TABLE};

/// Edits from a setting's name up to which a name counts as that setting misspelt.
const EDITS_MAX: usize = 2;

/// Names beginning with `AEP_` that are no setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// With the setting that was probably meant.
    misspelt: Vec<(String, String)>,
    /// Others.
    foreign: Vec<String>,
}

impl Unknown {
    /// Those among the names of an environment.
    pub(super) fn among(names: impl IntoIterator<Item = String>) -> Self {
        let mut settings: Vec<String> = TABLE.iter().map(SettingRow::variable).collect();
        // It has no flag.
        settings.push("AEP_TOKEN".to_owned());
        let mut unknown = Self::default();
        let mut names: Vec<String> = names.into_iter().filter(|name| name.starts_with("AEP_")).collect();
        names.sort_unstable();
        for name in names.into_iter().filter(|name| !settings.contains(name)) {
            let nearest = settings.iter().map(|setting| (strsim::levenshtein(&name, setting), setting)).min();
            // Whatever a name holds, it is told on one line.
            let name = name.escape_debug().to_string();
            match nearest {
                Some((distance, setting)) if distance <= EDITS_MAX => unknown.misspelt.push((name, setting.clone())),
                _ => unknown.foreign.push(name),
            }
        }
        unknown
    }

    /// A sentence for each that looks like a setting misspelt.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.misspelt.iter().map(|(name, setting)| format!("{name} is no setting and is ignored; is {setting} meant?"))
    }

    /// A sentence about the others, if there are any.
    pub(super) fn notice(&self) -> Option<String> {
        (!self.foreign.is_empty())
            .then(|| format!("not settings of the relay, and ignored: {}", self.foreign.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(names: &[&str]) -> (Vec<String>, Option<String>) {
        let unknown = Unknown::among(names.iter().map(|name| (*name).to_owned()));
        (unknown.warnings().collect(), unknown.notice())
    }

    #[test]
    fn a_misspelt_setting_is_warned_of() {
        for (name, setting) in [
            ("AEP_TOEKN", "AEP_TOKEN"),
            ("AEP_TOKENS", "AEP_TOKEN"),
            ("AEP_TOKN", "AEP_TOKEN"),
            ("AEP_TOKENFILE", "AEP_TOKEN_FILE"),
            ("AEP_MAX_SESSION", "AEP_MAX_SESSIONS"),
            ("AEP_CORE", "AEP_CORES"),
        ] {
            let warning = format!("{name} is no setting and is ignored; is {setting} meant?");
            assert_eq!(among(&[name, "AEP_PORT", "PATH"]), (vec![warning], None));
        }
    }

    #[test]
    fn settings_and_names_without_the_prefix_are_not_mentioned() {
        assert_eq!(among(&["AEP_TOKEN", "AEP_TOKEN_FILE", "AEP_BUFFER", "AEP", "PATH", "XAEP_PORTS"]), (vec![], None));
    }

    #[test]
    fn what_other_tools_read_is_told_in_one_line_and_is_no_warning() {
        let notice = "not settings of the relay, and ignored: AEP_SOURCE, AEP_URL".to_owned();
        assert_eq!(among(&["AEP_URL", "AEP_SOURCE"]), (vec![], Some(notice)));
    }
}
