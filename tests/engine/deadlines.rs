//! Deadlines that no connection has.

use std::sync::Arc;
use std::time::Duration;

use aep_relay::limits::TIMER_TICK_MS;

use crate::harness::{start_with, wait_until};

#[test]
fn a_deadline_without_a_connection_wakes_an_idle_core_for_itself_alone() {
    const COUNT: usize = 20;
    let mut dues = Arc::default();
    let server = start_with(1, |_, settings| {
        settings.deadline_interval = Some(Duration::from_millis(40));
        dues = Arc::clone(&settings.dues);
    });
    wait_until("deadlines come", || dues.lock().unwrap().len() >= COUNT);
    // Every wake is a turn, and one that came early would be one more: apart from the very first and one under way.
    let turns = server.metrics.sum(|core| core.turns.value());
    let dues = dues.lock().unwrap().clone();
    assert!(turns <= dues.len() as u64 + 2, "{turns} turns for {} deadlines", dues.len());
    // The machine may be late for any of them, though not for all.
    let late = dues.iter().map(|(due, now)| now.0 - due.0).min();
    assert!(late.is_some_and(|late| late <= TIMER_TICK_MS), "{late:?} ms late at the best");
}
