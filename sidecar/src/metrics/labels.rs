//! The closed sets of labels' values. Each value is written once, beside what it stands for.

use serde::Serialize;

/// A label of which all values are known.
pub(crate) trait Label: Copy + Eq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// As it is exported.
    fn value(self) -> &'static str;
}

macro_rules! labels {
    ($($(#[$about:meta])* enum $label:ident { $($(#[$means:meta])* $variant:ident => $value:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $label {
            $($(#[$means])* $variant,)+
        }

        impl Label for $label {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn value(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }
    )+};
}

/// What was decided. With whether it worked it makes the [`Outcome`] of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Permit,
    Deny,
}

labels! {
    /// What became of a request.
    enum Outcome {
        /// It was permitted and answered.
        Ok => "ok",
        /// It was permitted and failed, in the server or on the way.
        Failed => "failed",
        /// It was not permitted, or was no proper request.
        Refused => "refused",
    }

    /// Whether something worked.
    enum Worked {
        Yes => "ok",
        No => "error",
    }

    /// Whether a client that came back found the rest of its stream.
    enum Resumed {
        Yes => "ok",
        /// It is not kept any more.
        Gone => "gone",
    }

    /// What a server over stdio or HTTP+SSE wrote that went to nobody.
    enum Dropped {
        /// It was no message.
        Noise => "noise",
        /// It was one that nobody waited for.
        Unasked => "unasked",
    }

    /// How a process of a stdio server ended that ran.
    enum ProcessEnd {
        /// Its session ended, or it was not needed any more.
        Asked => "asked",
        /// It returned.
        Exited => "exited",
        /// A signal ended it.
        Killed => "killed",
        /// Its container was being stopped.
        Stopping => "stopping",
        /// Its container had ended.
        Lost => "lost",
        /// It closed stdin or stdout.
        Closed => "closed",
        /// It said nothing where it had to.
        Mute => "mute",
        /// What it wrote to stdout was too long, or no messages.
        Stdout => "stdout",
        /// It flooded stderr.
        Stderr => "stderr",
    }

    /// What became of a request that was taken to another replica.
    enum Forward {
        /// It was answered.
        Answered => "answered",
        /// It was not served there.
        Moved => "moved",
        /// The other replica could not be reached; nothing of it was written.
        Unreachable => "unreachable",
        /// The other replica was lost with it.
        Lost => "lost",
    }

    /// Why a session is not held here any more.
    enum SessionEnd {
        /// Its client ended it.
        Deleted => "deleted",
        /// Nobody used it.
        Idle => "idle",
        /// Its client had gone, and another session needed its process.
        Abandoned => "abandoned",
        /// It was too old.
        Aged => "aged",
        /// Its server had forgotten it, or never let it begin.
        Server => "server",
        /// Its client did not hear that it had begun.
        Unheard => "unheard",
        /// Another replica has it.
        Moved => "moved",
        /// The keys were made anew, and its id opens with none of them.
        Keys => "keys",
    }

    /// How a session came here that this process did not open.
    enum SessionTaken {
        /// From another replica.
        Adopted => "adopted",
        /// From a sidecar before this one in the same pod.
        Restarted => "restarted",
        /// Not at all: what its server knew in it was lost.
        Lost => "lost",
    }
}
