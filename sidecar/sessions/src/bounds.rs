//! How much of everything there may be, and how long the rules wait. In one place, since they lean on each other.

use std::time::Duration;

/// How often replicas send each other heartbeats and ask DNS who there is.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// After how long a replica that starts has had a heartbeat of everybody who knows it.
pub const INTRODUCED: Duration = Duration::from_millis(1_250);
/// How old the last word of a peer may be for it to count as alive: two heartbeats may be lost.
pub const FRESH: Duration = Duration::from_millis(3_500);
/// How long a question to a peer may take. It is answered from memory; what takes longer is a network that is broken.
pub const QUESTION: Duration = Duration::from_secs(2);
/// For how long a peer whose port refuses connections is waited for: the kubelet restarts a container within a second
/// or two the first time. Then for so long again until it serves.
pub const RESTART: Duration = Duration::from_secs(5);
/// For how long DNS must not have listed a peer until it counts as gone: name servers may answer from a cache that
/// is behind, some of them more than others.
pub const UNLISTED: Duration = Duration::from_secs(10);
/// A session that is younger than this may have an owner that DNS does not list yet. (Name servers of clusters keep
/// answers for up to 30 seconds.)
pub const UNLISTED_YET: Duration = Duration::from_secs(40);
/// For how long it is remembered what a pod was that DNS does not list any more.
pub const REMEMBERED: Duration = Duration::from_secs(80);
/// How old the last answer of DNS may be to say that somebody is gone.
pub const DNS_FRESH: Duration = Duration::from_secs(5);
/// How long one request looks for who serves it. In a rollout it may have to wait until a pod whose port refuses counts as
/// gone, and after that until another one is listed no longer. Once more for so long where all have passed the session on.
pub const DECIDE: Duration = Duration::from_secs(18);
/// After how long something that is being decided is looked at again.
pub const RETRY: Duration = Duration::from_millis(100);
/// After how long a call is taken once more to a replica that leaves it to its next process.
pub const NEXT: Duration = Duration::from_millis(500);
/// To how many peers one request is forwarded in turn, each of which sent it back. One suffices unless what replicas
/// know of each other is just changing.
pub const MAX_FORWARDS: u8 = 3;
/// How many replicas that have no room for a session are passed by at most. Whoever is next has the last word.
pub const MAX_FULL: usize = 8;

/// The longest UID of a pod. Kubernetes' are UUIDs of 36 characters.
pub const MAX_POD_ID: usize = 64;
/// The longest name of a pod's template: that of any label.
pub const MAX_TEMPLATE: usize = 63;
/// The longest session id. Some proxies refuse header lines that are much longer.
pub const MAX_ID: usize = 1023;
/// The most that a client may say of what it can do for that to be kept with its session, in bytes: many times what
/// clients have.
pub const MAX_CAPABILITIES: usize = 16 * 1024;
/// How many replicas are known at most: many times what one server has.
pub const MAX_MEMBERS: usize = 256;
/// How many of those who left are told of: a rolling update replaces a few at a time.
pub const MAX_DEPARTURES: usize = 32;
/// How many ended sessions are remembered: one ended each second for eighteen hours, in about 5 MB.
pub const MAX_TOMBSTONES: usize = 65_536;
/// Those that are forgotten within this time, in seconds, or twice that, are not compared between replicas.
pub const SOON: u64 = 64;
/// How many of them go into one message: about 200 KB.
pub const MAX_TOMBSTONES_A_PAGE: usize = 4_096;
/// For how many sessions of others a replica remembers who holds them, and keeps copies.
pub const MAX_REMEMBERED: usize = 16_384;
/// How many bytes those copies take together: as many as a replica keeps of its own, whose bound of each principal is that
/// of the copies too, since those of one replica are spread over all others.
pub const MAX_COPIED: usize = 32 * 1024 * 1024;
/// How many subscriptions of a session are copied and taken over.
pub const MAX_SUBSCRIPTIONS: usize = 64;
/// The longest URI among them, in bytes.
pub const MAX_SUBSCRIPTION: usize = 1_024;
/// The longest name of a principal in a message.
pub const MAX_PRINCIPAL: usize = 4_096;
