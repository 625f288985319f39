//! What something else has changed is changed back, and that is said: whoever scales a Deployment that is a server's, say,
//! sees nothing otherwise but that it does not help.

use kube::runtime::events::{Event, EventType};
use tokio::time::Instant;

use super::Applier;

/// The reason of the event that tells of it.
const CHANGED_BACK: &str = "ChangedBack";

// === impl Applier ===

impl Applier<'_> {
    /// Whether a number of pods that something else has given a Deployment stays so for now, and remembers until when: with
    /// one that is changed all the time the pods would come and go all the time. All else is undone at once, always: it may be
    /// about who may come in.
    pub(super) fn waits_to_undo(&self) -> bool {
        let mut memory = self.memory.lock();
        let undo_at = memory.undone.next(Instant::now());
        if undo_at.is_some() {
            memory.undo_at = undo_at;
        }
        undo_at.is_some()
    }

    /// Says that something else had changed an object, or the number of its pods alone, and that it is as the manifest says
    /// again. Once in a while, since that may go on for ever.
    pub(super) async fn tell_changed_back(&self, kind: &'static str, name: &str, is_rescaled: bool) {
        let (may_tell, is_often) = {
            let (mut memory, now) = (self.memory.lock(), Instant::now());
            if is_rescaled {
                memory.undone.again(now);
            }
            (memory.may_tell_changed_back(now), is_rescaled && memory.undone.is_often())
        };
        if !may_tell {
            return;
        }
        let namespace = self.server.namespace.as_str();
        tracing::warn!(kind, name, namespace, is_often, "changed by something else; undone");
        let what = if is_often {
            format!("something else keeps scaling {kind} {name}, which is undone once a minute")
        } else {
            format!("{kind} {name} was changed by something else, and the change was undone")
        };
        // Those of one action are told as one, in the words of the first.
        let pace = if is_often { "Seldom" } else { "" };
        let event = Event {
            type_: EventType::Warning,
            reason: CHANGED_BACK.to_owned(),
            note: Some(format!("{what}: change the McpServer instead, and let one operator look after it")),
            action: format!("Apply{kind}{pace}/{name}"),
            secondary: None,
        };
        self.context.tell(self.server, self.uid, &event).await;
    }
}
