//! Resolution as a whole: sources, defaults, relations, refusals.

use std::collections::HashMap;

use super::*;
use std::time::Duration;

use crate::limits::FRAMING_BYTES;

const MACHINE: Machine = Machine { cores: 2, descriptors: 20_000, memory: 64 << 30 };

fn resolve_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let raw = CommandLine::parse(["aep-relay"].iter().chain(arguments)).unwrap();
    let environment: HashMap<_, _> = environment.iter().copied().collect();
    Config::resolve(&raw, &|name| environment.get(name).map(|value| OsString::from(*value)), MACHINE)
}

fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    resolve_with(arguments, environment).unwrap_err().to_string()
}

/// `(flag without dashes, variable, documented default)` of every setting, from its help.
fn documented() -> Vec<(String, String, String)> {
    let command = table::command();
    let described = command.get_arguments().filter(|argument| argument.get_help_heading().is_some());
    described
        .map(|argument| {
            let help = argument.get_help().unwrap().to_string();
            let bracket = help.rsplit_once('[').unwrap().1.strip_suffix(']').unwrap();
            let (variable, default) = bracket.split_once(',').unwrap();
            (argument.get_long().unwrap().to_owned(), variable.to_owned(), default.trim().to_owned())
        })
        .collect()
}

#[test]
fn nothing_given_gives_the_documented_defaults() {
    let config = resolve_with(&[], &[]).unwrap();
    assert_eq!(config.address().to_string(), "127.0.0.1:8787");
    assert!(config.token.is_none());
    assert_eq!(config.cores, 2);
    assert_eq!(config.origins, Origins::Any);
    let expected = Limits { connections_max: MACHINE.connections(2), ..Limits::default() };
    assert_eq!(config.limits, expected);
    assert!(config.warnings().is_empty());
    assert_eq!(config.hosts, None);
}

#[test]
fn every_flag_names_its_variable_and_its_true_default() {
    let plain = resolve_with(&[], &[]).unwrap();
    let all = documented();
    assert_eq!(all.len(), 32);
    for (flag, variable, default) in all {
        assert_eq!(setting::variable_of(&flag), variable);
        let Some(value) = default.strip_prefix("default ") else {
            assert!(default.starts_with("default: "), "{flag}: {default}");
            continue;
        };
        for config in [
            resolve_with(&[&format!("--{flag}"), value], &[]).unwrap(),
            resolve_with(&[], &[(&variable, value)]).unwrap(),
        ] {
            assert_eq!(format!("{config:?}"), format!("{plain:?}"), "{flag}");
        }
    }
}

#[test]
fn every_setting_is_read_from_its_flag_and_its_variable_and_refused_under_that_name() {
    for (flag, variable, _) in documented() {
        let flag = format!("--{flag}");
        let nonsense = "a=b=c/\n";
        let by_flag = refused(&[&format!("{flag}={nonsense}")], &[(&variable, "ignored")]);
        assert!(by_flag.starts_with(&format!("{flag} is \"a=b=c/\\n\"")), "{by_flag}");
        let by_variable = refused(&[], &[(&variable, nonsense)]);
        assert!(by_variable.starts_with(&format!("{variable} is \"a=b=c/\\n\"")), "{by_variable}");
        assert!(by_variable.contains("; accepted: "), "{by_variable}");
    }
}

#[test]
fn a_flag_wins_over_a_variable_and_an_empty_variable_is_unset() {
    let config = resolve_with(&["--port", "1"], &[("AEP_PORT", "2"), ("AEP_BUFFER", "")]).unwrap();
    assert_eq!(config.port, 1);
    assert_eq!(config.limits.buffer_events_max, 10_000);
    assert_eq!(resolve_with(&[], &[("AEP_PORT", "2")]).unwrap().port, 2);
    assert_eq!(resolve_with(&["--port=1", "--port=3"], &[]).unwrap().port, 3);
    assert!(refused(&["--port="], &[]).starts_with("--port is \"\""));
    for (_, variable, _) in documented() {
        assert!(resolve_with(&[], &[(&variable, "")]).is_ok(), "{variable}");
    }
}

#[test]
fn a_refusal_names_setting_value_and_what_is_accepted() {
    assert_eq!(
        refused(&[], &[("AEP_PORT", "65536")]),
        "AEP_PORT is \"65536\"; accepted: 0 to 65535 (0 takes any free port)"
    );
    assert_eq!(refused(&["--buffer", "0"], &[]), "--buffer is \"0\"; accepted: a count from 1 to 4294967295");
    assert_eq!(refused(&["--port", "-1"], &[]), "--port is \"-1\"; accepted: 0 to 65535 (0 takes any free port)");
    assert_eq!(
        refused(&[], &[("AEP_HEARTBEAT", "26")]),
        "AEP_HEARTBEAT is \"26\"; accepted: seconds, from 1 to 25, fractions allowed"
    );
}

#[test]
fn every_count_and_size_is_at_least_one() {
    for (flag, variable, default) in documented() {
        let number =
            default.strip_prefix("default ").is_some_and(|value| value.starts_with(|c: char| c.is_ascii_digit()));
        if number && flag != "port" && flag != "host" {
            for value in ["0", "-1", "+1", "1 ", "99999999999999999999"] {
                assert!(resolve_with(&[], &[(&variable, value)]).is_err(), "{variable}={value}");
            }
        }
    }
}

#[test]
fn addresses_of_both_families_and_localhost_are_hosts() {
    for (text, address, shown) in [
        ("0.0.0.0", "0.0.0.0:8787", "0.0.0.0"),
        ("::1", "[::1]:8787", "[::1]"),
        ("[::1]", "[::1]:8787", "[::1]"),
        ("localhost", "127.0.0.1:8787", "localhost"),
        ("::ffff:127.0.0.1", "127.0.0.1:8787", "127.0.0.1"),
        ("[::ffff:10.1.2.3]", "10.1.2.3:8787", "10.1.2.3"),
    ] {
        let config = resolve_with(&["--host", text], &[]).unwrap();
        assert_eq!(config.address().to_string(), address);
        assert_eq!(config.host.to_string(), shown);
    }
    for text in ["example.com", "127.0.0.1:80", "[127.0.0.1]", "::1]", "256.0.0.1", " ::1"] {
        assert!(refused(&[], &[("AEP_HOST", text)]).contains("accepted: an IPv4 or IPv6 address"), "{text}");
    }
}

#[test]
fn defaults_follow_the_settings_they_are_made_of() {
    let limits = resolve_with(&["--max-sessions=7", "--max-body=1GiB", "--cores=4"], &[]).unwrap().limits;
    assert_eq!(limits.from_positions_max, 7);
    assert_eq!(limits.write_queue_bytes_max, (1 << 30) + FRAMING_BYTES);
    assert_eq!(limits.backlog_bytes_max, limits.write_queue_bytes_max);
    assert_eq!(limits.delivery_bytes_max, limits.write_queue_bytes_max);
    assert_eq!(limits.receiving_bytes_max, 1 << 30);
    assert_eq!(limits.replay_bytes_max, 16 << 30);
}

#[test]
fn a_bound_too_small_for_the_largest_event_is_refused_with_the_reason() {
    let body = 16usize << 20;
    for (variable, least, why) in [
        ("AEP_QUEUE_BYTES", body + FRAMING_BYTES, "AEP_MAX_BODY and 65536 of framing"),
        ("AEP_DELIVERY_BYTES", body + FRAMING_BYTES, "AEP_MAX_BODY and 65536 of framing"),
        ("AEP_BACKLOG_BYTES", body + FRAMING_BYTES, "AEP_QUEUE_BYTES"),
        ("AEP_RECEIVE_BYTES", body, "AEP_MAX_BODY"),
        ("AEP_SUBSCRIPTION_BYTES", body, "AEP_MAX_BODY"),
        ("AEP_BUFFER_BYTES", 2 * 4 * body, "four times AEP_MAX_BODY for each core"),
    ] {
        assert!(resolve_with(&[], &[(variable, &least.to_string())]).is_ok(), "{variable}");
        let line = refused(&[], &[(variable, &(least - 1).to_string())]);
        assert!(line.contains(&format!("from {least} ({why})")), "{line}");
    }
    assert_eq!(FRAMING_BYTES, 65_536);
    assert_eq!(limits::REPLAY_EVENTS_PER_CORE_MIN, 4);
}

#[test]
fn times_may_be_fractions_of_a_second() {
    let limits = resolve_with(&["--head-time=0.2"], &[("AEP_HEARTBEAT", "1.5")]).unwrap().limits;
    assert_eq!(limits.head_time, Duration::from_millis(200));
    assert_eq!(limits.heartbeat_interval, Duration::from_millis(1500));
}

#[test]
fn a_token_that_cannot_be_sent_is_refused_without_being_shown() {
    for token in ["two words", "tab\there", "ünicode-hunter2", &"x".repeat(1025)] {
        let line = refused(&[], &[("AEP_TOKEN", token)]);
        assert!(line.starts_with("AEP_TOKEN is no usable token; accepted: 1 to 1024"), "{line}");
        assert!(!line.contains(token));
    }
    let config = resolve_with(&[], &[("AEP_TOKEN", "hunter2")]).unwrap();
    assert!(config.token.is_some());
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn two_variables_for_one_token_are_refused() {
    let line = refused(&[], &[("AEP_TOKEN", "hunter2"), ("AEP_TOKEN_FILE", "hunter3")]);
    assert_eq!(line, "AEP_TOKEN_FILE and AEP_TOKEN are both set; accepted: one of them");
}

#[test]
fn an_open_port_without_a_token_and_too_few_descriptors_are_warned_of() {
    let open = resolve_with(&["--host=::"], &[]).unwrap().warnings();
    assert!(open.len() == 1 && open[0].contains("[::] without AEP_TOKEN"), "{open:?}");
    assert!(resolve_with(&["--host=::"], &[("AEP_TOKEN", "t")]).unwrap().warnings().is_empty());
    assert!(resolve_with(&["--host=::ffff:127.0.0.1"], &[]).unwrap().warnings().is_empty());
    let open = resolve_with(&["--host=::ffff:10.1.2.3"], &[]).unwrap().warnings();
    assert!(open.len() == 1 && open[0].contains("10.1.2.3 without AEP_TOKEN"), "{open:?}");
    let many = resolve_with(&["--max-connections=50000"], &[]).unwrap().warnings();
    assert!(many.len() == 1 && many[0].contains("AEP_MAX_CONNECTIONS is 50000"), "{many:?}");
}

#[test]
fn whom_an_open_relay_is_open_to_is_told() {
    let told = |arguments: &[&str]| resolve_with(arguments, &[]).unwrap().notices().concat();
    let open = told(&[]);
    assert!(open.contains("every program on this machine") && open.contains("every page in a browser"), "{open}");
    let listed = told(&["--origins=https://a.example"]);
    assert!(!listed.contains("every page") && listed.contains("DNS rebinding: AEP_HOSTS"), "{listed}");
    let guarded = told(&["--origins=https://a.example", "--hosts=localhost"]);
    assert!(guarded.ends_with("may publish and read everything"), "{guarded}");
    let warned = resolve_with(&["--host=0.0.0.0"], &[]).unwrap();
    assert!(warned.notices().is_empty() && warned.warnings().concat().contains("every page in a browser"));
    assert!(resolve_with(&[], &[("AEP_TOKEN", "t")]).unwrap().notices().is_empty());
}

#[test]
fn a_port_that_kubernetes_has_set_is_refused_with_where_it_comes_from() {
    let line = refused(&[], &[("AEP_PORT", "tcp://10.0.0.1:8787")]);
    assert!(line.contains("Kubernetes") && line.contains("enableServiceLinks"), "{line}");
    assert!(!refused(&["--port=tcp://10.0.0.1:8787"], &[]).contains("Kubernetes"));
    assert!(!refused(&[], &[("AEP_PORT", "http")]).contains("Kubernetes"));
    assert!(resolve_with(&["--port=1"], &[("AEP_PORT", "tcp://10.0.0.1:8787")]).is_ok());
}

#[test]
fn the_address_bound_is_a_host_that_requests_may_be_for() {
    for (host, own) in
        [("127.0.0.1", "127.0.0.1:8787"), ("localhost", "localhost"), ("localhost", "127.0.0.1"), ("::1", "[::1]:1")]
    {
        let hosts = resolve_with(&["--host", host, "--hosts=relay.example"], &[]).unwrap().hosts.unwrap();
        assert!(
            hosts.include(own.as_bytes()) && hosts.include(b"relay.example") && !hosts.include(b"evil.test"),
            "{host}"
        );
    }
}

#[test]
fn the_documented_headroom_of_descriptors_is_the_real_one() {
    let machine = Machine { cores: 1, descriptors: 1000, memory: 64 << 30 };
    assert_eq!(machine.connections(3), 1000 - 64 - 3 * 16);
}

fn within(memory: &str, arguments: &[&str]) -> Config {
    resolve_with(arguments, &[("AEP_MEMORY", memory)]).unwrap()
}

#[test]
fn bounds_that_are_not_set_fit_the_memory_together() {
    let whole = resolve_with(&[], &[]).unwrap();
    assert_eq!(whole.memory, 48 << 30);
    for memory in [100, 225, 768, 3000usize] {
        let config = within(&format!("{memory}MiB"), &[]);
        let total = config.budget().total_bytes();
        assert!(total <= memory << 20 && total > (memory << 20) / 100 * 98, "{memory}: {}", config.budget());
        assert!(config.warnings().is_empty(), "{:?}", config.warnings());
        assert!(config.notices().iter().any(|line| line.contains("AEP_MEMORY")));
        // One share for all, where no body stands against it.
        let part = |limits: &Limits| (limits.backlog_bytes_max >> 16, limits.connections_max);
        let ((backlog, connections), (all, most)) = (part(&config.limits), part(&whole.limits));
        assert!((backlog * most).abs_diff(connections * all) < most.max(all) || memory < 300, "{memory}");
    }
    assert!(!whole.notices().iter().any(|line| line.contains("AEP_MEMORY")));
    assert_eq!(within("3000MiB", &[]).limits.body_bytes_max, 16 << 20);
    assert!(within("225MiB", &[]).limits.body_bytes_max > 4 << 20);
}

#[test]
fn bounds_that_are_set_stay_and_the_others_make_way() {
    let alone = within("768MiB", &[]).limits;
    let beside = within("768MiB", &["--backlog-bytes=300MiB"]);
    assert_eq!(beside.limits.backlog_bytes_max, 300 << 20);
    assert!(beside.limits.replay_bytes_max < alone.replay_bytes_max);
    assert!(beside.budget().total_bytes() <= 768 << 20 && beside.warnings().is_empty());

    let over = within("225MiB", &["--backlog-bytes=300MiB"]).warnings();
    assert!(
        over.len() == 1 && over[0].contains("AEP_MEMORY is 225 MiB, but the other bounds allow at most "),
        "{over:?}"
    );
    assert!(over[0].contains("backlogs of slow consumers 300 MiB"), "{over:?}");
}

#[test]
fn the_memory_is_three_quarters_of_the_machine_s_unless_set() {
    let small = Machine { memory: 400 << 20, ..MACHINE };
    let config = Config::resolve(&CommandLine::default(), &|_| None, small).unwrap();
    assert_eq!(config.memory, 300 << 20);
    assert!(config.budget().total_bytes() <= 300 << 20);
}
