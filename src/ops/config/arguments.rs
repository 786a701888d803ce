//! The flags: what there is, in groups, each explained with its unit, its variable and its default.
//!
//! Values are taken as text: what they may be is decided in `config.rs`, in the same words for a flag and for a
//! variable. Every flag takes exactly one value, and the last of a repeated one counts.

use clap::Parser;

/// The command line as written; nothing here is checked yet.
#[derive(Debug, Clone, Default, Parser)]
#[command(
    name = "aep-relay",
    version,
    about = "A relay for agent activity events: HTTP and WebSocket in, SSE and WebSocket out.",
    long_about = None,
    args_override_self = true,
    max_term_width = 100,
    after_help = "Every setting can be given as a flag or as the environment variable in brackets; the flag wins, and \
                  an empty variable is unset. Sizes are bytes, plain or with KiB, MiB or GiB; times are seconds, \
                  fractions allowed. A wrong value ends the start with one line and exit status 2.\n\n\
                  The token itself has no flag, because every user can read a process's arguments: set AEP_TOKEN, or \
                  name a file. SIGTERM, SIGINT or SIGHUP drains and exits 0; a drain that takes too long, or a second signal, \
                  exits 1."
)]
pub struct RawConfig {
    /// Address to bind: IPv4, IPv6 or localhost [AEP_HOST, default 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", help_heading = "Listening", allow_hyphen_values = true)]
    pub host: Option<String>,
    /// Port to bind, 0 for any free one [AEP_PORT, default 8787]
    #[arg(long, value_name = "PORT", help_heading = "Listening", allow_negative_numbers = true)]
    pub port: Option<String>,
    /// Event loops, one thread each, 1 to 64 [AEP_CORES, default: the machine's processors]
    #[arg(long, value_name = "COUNT", help_heading = "Listening", allow_negative_numbers = true)]
    pub cores: Option<String>,
    /// Connections at once; one more is answered 503 [AEP_MAX_CONNECTIONS, default: 100000, or what the limit of open
    /// files leaves beside 64 for the process and 16 for each core]
    #[arg(long, value_name = "COUNT", help_heading = "Listening", allow_negative_numbers = true)]
    pub max_connections: Option<String>,

    /// File holding the bearer token, which may end in one line end [AEP_TOKEN_FILE, default: AEP_TOKEN; without
    /// either, everybody may publish and read, and control is refused]
    #[arg(long, value_name = "PATH", help_heading = "Access")]
    pub token_file: Option<String>,
    /// Browser origins that may use the relay: *, or a list separated by commas, each scheme://host or
    /// scheme://host:port [AEP_ORIGINS, default *]
    #[arg(long, value_name = "ORIGINS", help_heading = "Access")]
    pub origins: Option<String>,
    /// Hosts that requests may be for, against DNS rebinding: names or addresses without port, separated by commas; the
    /// address bound is one of them anyway, any other Host is answered 421 [AEP_HOSTS, default: no check]
    #[arg(long, value_name = "HOSTS", help_heading = "Access")]
    pub hosts: Option<String>,

    /// Events kept per session; the lowest position leaves first [AEP_BUFFER, default 10000]
    #[arg(long, value_name = "COUNT", help_heading = "Replay", allow_negative_numbers = true)]
    pub buffer: Option<String>,
    /// Sessions kept; the least recently written is evicted [AEP_MAX_SESSIONS, default 500]
    #[arg(long, value_name = "COUNT", help_heading = "Replay", allow_negative_numbers = true)]
    pub max_sessions: Option<String>,
    /// Memory of all replay buffers together; at least four times --max-body for each core, to which the default grows
    /// [AEP_BUFFER_BYTES, default 1GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Replay", allow_negative_numbers = true)]
    pub buffer_bytes: Option<String>,
    /// Resume positions in one subscription [AEP_MAX_FROM, default: --max-sessions]
    #[arg(long, value_name = "COUNT", help_heading = "Replay", allow_negative_numbers = true)]
    pub max_from: Option<String>,

    /// One POST body or one WebSocket message, at most 1 GiB [AEP_MAX_BODY, default 16MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Requests", allow_negative_numbers = true)]
    pub max_body: Option<String>,
    /// Events in one NDJSON batch [AEP_MAX_BATCH, default 10000]
    #[arg(long, value_name = "COUNT", help_heading = "Requests", allow_negative_numbers = true)]
    pub max_batch: Option<String>,
    /// A request's head; over it 431 or 414 [AEP_HEAD_BYTES, default 64KiB]
    #[arg(long, value_name = "BYTES", help_heading = "Requests", allow_negative_numbers = true)]
    pub head_bytes: Option<String>,
    /// From a request's first byte to the end of its head; over it 408 [AEP_HEAD_TIME, default 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Requests", allow_negative_numbers = true)]
    pub head_time: Option<String>,
    /// For a body or WebSocket message, which then must keep 1 KiB/s over ten seconds; else 408 or 1008 [AEP_BODY_TIME,
    /// default 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Requests", allow_negative_numbers = true)]
    pub body_time: Option<String>,
    /// A kept-alive connection without a request is closed after this [AEP_IDLE_TIME, default 75]
    #[arg(long, value_name = "SECONDS", help_heading = "Requests", allow_negative_numbers = true)]
    pub idle_time: Option<String>,

    /// Silence on an event stream after which a comment goes out, 1 to 25 [AEP_HEARTBEAT, default 15]
    #[arg(long, value_name = "SECONDS", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub heartbeat: Option<String>,
    /// From a WebSocket's upgrade to its hello [AEP_HELLO_TIME, default 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub hello_time: Option<String>,
    /// A hello [AEP_HELLO_BYTES, default 64KiB]
    #[arg(long, value_name = "BYTES", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub hello_bytes: Option<String>,
    /// Subscriptions of one WebSocket [AEP_MAX_SUBSCRIPTIONS, default 4096]
    #[arg(long, value_name = "COUNT", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub max_subscriptions: Option<String>,
    /// Sessions one WebSocket claims; over it the oldest claim lapses [AEP_MAX_CLAIMS, default 10000]
    #[arg(long, value_name = "COUNT", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub max_claims: Option<String>,
    /// Scalars in one filter [AEP_MAX_SCALARS, default 1024]
    #[arg(long, value_name = "COUNT", help_heading = "Streams and WebSockets", allow_negative_numbers = true)]
    pub max_scalars: Option<String>,

    /// All of the following together: those that are not set, --buffer-bytes, --max-body and --max-connections are made
    /// smaller until the sum fits [AEP_MEMORY, default: three quarters of what control group, ulimit -v and machine
    /// allow]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub memory: Option<String>,
    /// What may wait for one connection, at least --max-body and 64 KiB of framing; beyond it the connection is a slow
    /// consumer [AEP_QUEUE_BYTES, default: that least]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub queue_bytes: Option<String>,
    /// What waits for slow consumers, all together; beyond it the largest backlog is cut first [AEP_BACKLOG_BYTES,
    /// default 512MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub backlog_bytes: Option<String>,
    /// Events being delivered, for each core [AEP_DELIVERY_BYTES, default 64MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub delivery_bytes: Option<String>,
    /// Requests and messages being received, all together; beyond it senders wait, then 503 or 1013 [AEP_RECEIVE_BYTES,
    /// default 512MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub receive_bytes: Option<String>,
    /// What all connections say of themselves, subscribe to and claim, as it lies in memory; beyond it large hellos and
    /// subscriptions are refused and claims lapse
    /// [AEP_SUBSCRIPTION_BYTES, default 512MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Memory", allow_negative_numbers = true)]
    pub subscription_bytes: Option<String>,

    /// How long a drain may take before the process exits 1 [AEP_DRAIN_TIME, default 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Operation", allow_negative_numbers = true)]
    pub drain_time: Option<String>,
    /// Whether GET /metrics is served, on or off [AEP_METRICS, default on]
    #[arg(long, value_name = "ON|OFF", help_heading = "Operation")]
    pub metrics: Option<String>,
    /// What is logged: a level, or filter directives [AEP_LOG, default info]
    #[arg(long, value_name = "FILTER", help_heading = "Operation")]
    pub log: Option<String>,
}
