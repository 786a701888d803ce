//! The command line as seen from outside (contract §1): exit status, and which stream says what.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs the relay to its end. Only for invocations that must not serve: with a free port they would run on.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aep-relay"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AEP_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

/// The one line with which the start was refused.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = run(arguments, environment);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.ends_with('\n') && line.lines().count() == 1, "{line:?}");
    line.trim_end().to_owned()
}

/// A file that is gone when the test is.
struct TokenFile(PathBuf);

impl TokenFile {
    fn holding(name: &str, content: &[u8]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn help_goes_to_standard_output_and_names_every_setting() {
    let output = run(&["--help"], &[("AEP_PORT", "not even read")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let help = String::from_utf8(output.stdout).unwrap();
    for word in ["--port", "AEP_PORT", "8787", "--max-body", "AEP_MAX_BODY", "--token-file", "AEP_TOKEN", "--version"] {
        assert!(help.contains(word), "{word}\n{help}");
    }
    assert!(!help.contains("--token "), "{help}");
}

#[test]
fn version_goes_to_standard_output() {
    let output = run(&["--version"], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("aep-relay {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_bad_value_is_one_line_that_names_setting_value_and_what_is_accepted() {
    for (variable, value, accepted) in [
        ("AEP_PORT", "65536", "0 to 65535"),
        ("AEP_PORT", "http", "0 to 65535"),
        ("AEP_HOST", "not a host", "an IPv4 or IPv6 address"),
        ("AEP_BUFFER", "0", "a count from 1"),
        ("AEP_MAX_SESSIONS", "-1", "a count from 1"),
        ("AEP_MAX_BODY", "0", "bytes, from 1"),
        ("AEP_MAX_BATCH", "many", "a count from 1"),
        ("AEP_MAX_FROM", "1.5", "a count from 1"),
        ("AEP_CORES", "65", "a count from 1 to 64"),
        ("AEP_HEARTBEAT", "0", "seconds, from 1 to 25"),
        ("AEP_ORIGINS", "good.example", "scheme://host"),
        ("AEP_HOSTS", "http://relay.example", "names or addresses"),
        ("AEP_LOG", "a=b=c", "filter directives"),
        ("AEP_METRICS", "yes", "on or off"),
    ] {
        let line = refused(&[], &[(variable, value)]);
        assert!(line.starts_with(&format!("aep-relay: {variable} is {value:?}; accepted: ")), "{line}");
        assert!(line.contains(accepted), "{line}");

        let flag = format!("--{}", variable[4..].to_lowercase().replace('_', "-"));
        let line = refused(&[&format!("{flag}={value}")], &[]);
        assert!(line.starts_with(&format!("aep-relay: {flag} is {value:?}; accepted: ")), "{line}");
    }
}

#[test]
fn a_port_of_kubernetes_is_refused_with_where_it_comes_from() {
    let line = refused(&[], &[("AEP_PORT", "tcp://10.0.0.1:8787")]);
    assert!(line.starts_with("aep-relay: AEP_PORT is \"tcp://10.0.0.1:8787\"; accepted: 0 to 65535"), "{line}");
    assert!(line.contains("Kubernetes sets such a value"), "{line}");
}

/// A stack larger than the address space stands for whatever else keeps a thread from starting.
#[test]
fn a_start_without_threads_says_so() {
    let output = run(&["--port=0", "--cores=2"], &[("RUST_MIN_STACK", &(1_u64 << 50).to_string())]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().any(|line| line.starts_with("aep-relay: cannot start a thread")), "{said}");
    assert!(!said.contains("cannot listen"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = run(&["--port", &address.port().to_string()], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("aep-relay: cannot listen on {address}: ")), "{said}");
}

#[test]
fn an_unknown_or_incomplete_flag_is_one_line_too() {
    let line = refused(&["--prot", "1"], &[]);
    assert!(line.contains("'--prot'") && line.contains("is '--port' meant?"), "{line}");
    assert!(refused(&["stray"], &[]).contains("'stray'"));
    assert!(refused(&["--port"], &[]).contains("--port"));
    assert!(refused(&["--buffer", "--port"], &[]).contains("--buffer"));
}

#[test]
fn a_token_has_no_flag_and_is_never_shown() {
    for arguments in [&["--token", "hunter2"][..], &["--token=hunter2"]] {
        let line = refused(arguments, &[]);
        assert!(line.contains("'--token'") && line.contains("'--token-file'") && !line.contains("hunter2"), "{line}");
    }
    let line = refused(&[], &[("AEP_TOKEN", "hunter2 with spaces")]);
    assert!(line.starts_with("aep-relay: AEP_TOKEN ") && !line.contains("hunter2"), "{line}");
    // Beside a fault elsewhere it stays hidden as well.
    assert!(!refused(&["--port=x"], &[("AEP_TOKEN", "hunter2")]).contains("hunter2"));
}

#[test]
fn a_token_file_must_hold_exactly_one_usable_token() {
    for (name, content) in [
        ("empty", &b""[..]),
        ("blank", b"\n"),
        ("two-lines", b"hunter2\n\n"),
        ("spaces", b" hunter2"),
        ("binary", b"hunter2\xff"),
        ("too-long", &[b'h'; 1025]),
    ] {
        let file = TokenFile::holding(name, content);
        let line = refused(&["--token-file", file.path()], &[]);
        assert!(line.starts_with("aep-relay: --token-file is ") && line.contains("no usable token"), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
        let line = refused(&[], &[("AEP_TOKEN_FILE", file.path())]);
        assert!(line.starts_with("aep-relay: AEP_TOKEN_FILE is "), "{line}");
    }
    let line = refused(&["--token-file", "/nonexistent/token"], &[]);
    assert!(line.contains("\"/nonexistent/token\": No such file"), "{line}");
}

/// A good token is past the point where a bad one is refused: the next fault is the one reported.
#[test]
fn a_token_file_may_end_in_one_line_end() {
    for (name, content) in [("bare", &b"hunter2"[..]), ("lf", b"hunter2\n"), ("crlf", b"hunter2\r\n")] {
        let file = TokenFile::holding(name, content);
        let line = refused(&["--token-file", file.path(), "--max-batch=0"], &[("AEP_TOKEN", "also set")]);
        assert!(line.starts_with("aep-relay: --max-batch is "), "{line}");
    }
}

/// It cannot listen, so it ends; what it says at start it has said by then.
#[test]
fn a_misspelt_variable_is_warned_of_by_name_alone() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let environment = [("AEP_TOEKN", "hunter2"), ("AEP_URL", "http://hunter3"), ("AEP_PORT", &port)];
    let output = run(&[], &environment);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let line = |text: &str| said.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{said}"));
    assert!(line("AEP_TOEKN is no setting and is ignored; is AEP_TOKEN meant?").contains("WARN"), "{said}");
    assert!(line("not settings of the relay, and ignored: AEP_URL").contains("INFO"), "{said}");
    assert!(!said.contains("hunter"), "{said}");
}

#[test]
fn a_variable_that_is_no_unicode_is_refused_not_ignored() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_aep-relay"));
    command.env("AEP_PORT", std::ffi::OsStr::from_bytes(b"80\xff"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr).unwrap().starts_with("aep-relay: AEP_PORT is \"80"),
        "{:?}",
        output.stdout
    );
}
