//! Where the token comes from: `--token-file`, or `AEP_TOKEN`, or `AEP_TOKEN_FILE`.
//!
//! There is no flag with the token itself: every user of a machine can read the arguments of its processes. Errors
//! name the source and never the value.

use std::fs::File;
use std::io::{self, Read};

use super::setting::{ConfigError, Setting, Settings};
use crate::limits::TOKEN_BYTES_MAX;
use crate::ops::auth::Token;

pub(super) fn resolve(settings: &Settings<'_>) -> Result<Option<Token>, ConfigError> {
    let variable = settings.variable("AEP_TOKEN");
    let file = settings.given("token-file");
    match (variable, file) {
        (Some(_), Some(file)) if file.name == "AEP_TOKEN_FILE" => {
            Err(ConfigError::secret(&file.name, "and AEP_TOKEN are both set", "one of them"))
        }
        (_, Some(file)) => from_file(&file).map(Some),
        (Some(variable), None) => {
            let token = Token::parse(variable.as_encoded_bytes());
            token.map(Some).ok_or_else(|| ConfigError::secret("AEP_TOKEN", "is no usable token", Token::ACCEPTED))
        }
        (None, None) => Ok(None),
    }
}

/// The content of the file, less one line end.
fn from_file(file: &Setting) -> Result<Token, ConfigError> {
    let path = format!("{:?}", file.value);
    let accepted = format!("the path of a file that holds {}", Token::ACCEPTED);
    let bytes = read(&file.value)
        .map_err(|error| ConfigError::secret(&file.name, &format!("is {path}: {error}"), &accepted))?;
    let token = bytes.strip_suffix(b"\n").map_or(&bytes[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
    let refusal = || ConfigError::secret(&file.name, &format!("is {path}, which holds no usable token"), &accepted);
    Token::parse(token).ok_or_else(refusal)
}

/// A path may name something endless; no more is read than tells a token from something longer.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(TOKEN_BYTES_MAX as u64 + 3).read_to_end(&mut bytes)?;
    Ok(bytes)
}
