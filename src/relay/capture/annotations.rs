//! What each registered type carries above `metadata`, and what becomes of it below (contract §5).
//!
//! A path is the joined names of members, `[]` after a name standing for each item of its array. A field that is not
//! listed is of level `metadata`. A type that is not listed has no annotations, so none of its payload may pass; a type
//! with an empty list carries metadata only.
//!
//! Invariants: types ascend; no path of a type lies inside another of its paths.

use crate::relay::event::Capture;

/// A field whose level is above `metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnotatedField {
    /// Where it stands in `data`.
    pub path: &'static str,
    /// The lowest level at which it passes as it is.
    pub minimum: Capture,
    /// What becomes of it below that.
    pub below: Below,
}

/// What becomes of a field below its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// It goes.
    Removed,
    /// A sentence of attributes takes its place.
    Prompt,
    /// The `id` beside it takes its place.
    Label,
    /// Only numbers and booleans in it stay.
    Values,
}

const fn redacted(path: &'static str) -> AnnotatedField {
    AnnotatedField { path, minimum: Capture::Redacted, below: Below::Removed }
}

const fn full(path: &'static str) -> AnnotatedField {
    AnnotatedField { path, minimum: Capture::Full, below: Below::Removed }
}

const fn lowered(path: &'static str, below: Below) -> AnnotatedField {
    AnnotatedField { path, minimum: Capture::Redacted, below }
}

/// The fields of a type above `metadata`; nothing for a type without registered annotations.
#[must_use]
pub fn fields(kind: &str) -> Option<&'static [AnnotatedField]> {
    let at = TYPES.binary_search_by(|(registered, _)| (*registered).cmp(kind)).ok()?;
    TYPES.get(at).map(|(_, fields)| *fields)
}

/// Every type with registered annotations, ascending.
pub fn registered_types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(kind, _)| *kind)
}

static TYPES: &[(&str, &[AnnotatedField])] = &[
    ("agent.health", &[redacted("detail")]),
    ("agent.heartbeat", &[]),
    ("agent.idle", &[]),
    ("agent.presence", &[]),
    ("assessment.evaluation.recorded", &[redacted("gen_ai.evaluation.explanation")]),
    ("assessment.feedback.received", &[redacted("comment"), redacted("correction")]),
    ("assessment.guardrail.recorded", &[redacted("guardrail.explanation")]),
    ("attention.answered", &[redacted("answer.text"), lowered("answer.values", Below::Values)]),
    (
        "attention.requested",
        &[
            full("context"),
            lowered("prompt", Below::Prompt),
            lowered("options[].label", Below::Label),
            lowered("fields[].label", Below::Label),
            lowered("fields[].choices[].label", Below::Label),
        ],
    ),
    ("attention.resolved", &[]),
    ("attention.routed", &[]),
    ("attention.timeout", &[]),
    ("control.accepted", &[]),
    ("control.attention.respond", &[redacted("answer.text"), lowered("answer.values", Below::Values)]),
    ("control.cancel", &[redacted("reason")]),
    ("control.pause", &[]),
    ("control.rejected", &[redacted("detail")]),
    ("control.resume", &[]),
    ("delegation.subagent.started", &[]),
    ("delegation.subagent.stopped", &[]),
    ("error.raised", &[redacted("error.message")]),
    ("progress.artifact.produced", &[redacted("artifact.name"), redacted("artifact.uri")]),
    ("progress.status", &[redacted("message")]),
    ("progress.task.completed", &[redacted("task.title")]),
    ("progress.task.planned", &[redacted("task.title")]),
    (
        "resource.citation.recorded",
        &[
            redacted("citations[].source.uri"),
            redacted("citations[].source.title"),
            redacted("citations[].cited_text_redacted"),
            full("citations[].cited_text"),
        ],
    ),
    ("resource.retrieval.requested", &[redacted("query")]),
    (
        "resource.retrieval.reranked",
        &[
            redacted("query"),
            redacted("input_documents[].content_redacted"),
            full("input_documents[].content"),
            redacted("output_documents[].content_redacted"),
            full("output_documents[].content"),
        ],
    ),
    ("resource.retrieval.returned", &[redacted("documents[].content_redacted"), full("documents[].content")]),
    ("run.cancelled", &[redacted("reason")]),
    ("run.failed", &[redacted("error.message")]),
    ("run.finished", &[redacted("summary")]),
    ("run.started", &[redacted("prompt")]),
    ("run.step.finished", &[]),
    ("run.step.started", &[redacted("name")]),
    ("session.compacted", &[]),
    ("session.ended", &[]),
    ("session.started", &[redacted("label"), redacted("cwd")]),
    ("state.delta", &[redacted("delta")]),
    ("state.snapshot", &[redacted("state")]),
    ("tool.completed", &[redacted("result_redacted"), full("result")]),
    ("tool.denied", &[]),
    ("tool.failed", &[redacted("error.message")]),
    ("tool.requested", &[redacted("args_redacted"), full("args")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_ascend_so_that_each_is_found() {
        assert!(TYPES.is_sorted_by(|(a, _), (b, _)| a < b));
        for kind in registered_types() {
            assert!(fields(kind).is_some(), "{kind}");
        }
        assert_eq!(fields("x.acme.session.blob"), None);
    }

    #[test]
    fn no_path_lies_inside_another() {
        for (kind, fields) in TYPES {
            for (a, b) in fields.iter().flat_map(|a| fields.iter().map(move |b| (a, b))) {
                let beyond = a.path.strip_prefix(b.path);
                assert!(
                    beyond
                        .is_none_or(|beyond| (beyond.is_empty() && a == b)
                            || !beyond.starts_with(['.', '[']) && !beyond.is_empty()),
                    "{kind}: {} in {}",
                    a.path,
                    b.path
                );
            }
        }
    }
}
