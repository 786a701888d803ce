//! One figure to be read: its label and unit, both from its name, and its value.

use serde_json::{Value, json};

/// Ends of names, and the units they stand for; the first that fits.
const UNITS: [(&str, &str); 8] = [
    ("_per_server_cpu_s", "/s of server CPU"),
    ("_per_s", "/s"),
    ("_us", "µs"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("generator_share", "of all processors"),
    ("_share", "processors"),
    ("_share_held", "processors"),
];

/// A figure's name to be read, without what [`unit`] tells.
pub(super) fn label(name: &str) -> String {
    let quotient = name.replace("_us_per_", "_per_");
    let end = UNITS.iter().map(|(end, _)| *end).find(|end| name.ends_with(end));
    let short = match end {
        Some(end) if end.starts_with('_') && !end.contains("share") => name.strip_suffix(end).unwrap_or(name),
        _ => &quotient,
    };
    short.replace("p99_9", "p99.9").replace('_', " ")
}

/// A figure's unit; nothing for a count.
pub(super) fn unit(name: &str) -> &'static str {
    if name.contains("_us_per_") {
        return "µs";
    }
    if name.contains("_to_without") {
        return "times";
    }
    UNITS.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit)
}

/// A whole number as such.
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

/// A number to be read: counts in groups of three, the others with three or four significant digits.
pub(super) fn shown(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 1000.0 {
        let places = if value.abs() < 1.0 {
            4
        } else if value.abs() < 100.0 {
            2
        } else {
            1
        };
        return format!("{value:.places$}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels_and_units() {
        for (name, expected) in [
            ("delivered", ("delivered", "")),
            ("events_per_s", ("events", "/s")),
            ("events_per_s_without", ("events per s without", "")),
            ("megabytes_per_server_cpu_s", ("megabytes", "/s of server CPU")),
            ("latency_p99_99_us", ("latency p99.99", "µs")),
            ("measured_s", ("measured", "s")),
            ("memory_per_connection_bytes", ("memory per connection", "bytes")),
            ("server_cpu_us_per_delivery", ("server cpu per delivery", "µs")),
            ("server_cpu_us_per_event_without", ("server cpu per event without", "µs")),
            ("server_cpu_share", ("server cpu share", "processors")),
            ("generator_share", ("generator share", "of all processors")),
            ("p99_with_to_without", ("p99 with to without", "times")),
        ] {
            assert_eq!((label(name).as_str(), unit(name)), expected, "{name}");
        }
    }

    #[test]
    fn numbers_are_shown_to_be_read() {
        for (value, expected) in [
            (0.0, "0"),
            (1_234_567.0, "1 234 567"),
            (999.0, "999"),
            (0.25, "0.2500"),
            (12.345, "12.35"),
            (123.45, "123.5"),
            (1234.5, "1 234"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }
}
