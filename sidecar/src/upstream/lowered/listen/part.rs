//! What a server tells of that refuses to tell of all: one resource that it does not know any more may be enough for that, and
//! it need not say which.

use std::collections::BTreeSet;

use super::{Asked, Told, is_refused, open};
use crate::upstream::Failure;
use crate::upstream::lowered::{self, way::Way};

/// How often a server is asked at most to find that out. What is not known by then is looked for with the next stream.
const MOST: usize = 32;
/// How many groups are set aside at most for which it has no answer in time: the others are asked for still.
const MUTE: usize = 2;

/// A part of the resources.
pub(super) struct Part {
    /// The stream that tells of them. None: no more is found than is told of.
    pub(super) told: Option<Told>,
    pub(super) uris: BTreeSet<String>,
    /// Those that it refuses, each by itself.
    pub(super) refused: BTreeSet<String>,
}

/// What a server that refuses to tell of `all` tells of at once: those that it is not known to refuse, or its lists alone.
pub(super) async fn begin(
    way: &Way,
    known: &BTreeSet<String>,
    all: &BTreeSet<String>,
) -> Result<Asked, Failure> {
    if known != all {
        match open(way, known).await {
            Ok(told) => return Ok((told, known.clone())),
            Err(failure) if !is_refused(&failure) || known.is_empty() => return Err(failure),
            Err(_) => {}
        }
    }
    Ok((open(way, &BTreeSet::new()).await?, BTreeSet::new()))
}

/// Has a server that refuses to tell of `all` tell of those of the `new` ones that it takes beside these: it is asked for
/// half of what it refuses, and for the other half. Each that it refuses by itself is noted at once: whatever ends this, it
/// need not be found again.
pub(super) async fn find(
    way: &Way,
    (uris, new): (BTreeSet<String>, BTreeSet<String>),
    all: &BTreeSet<String>,
) -> Result<Part, Failure> {
    let mut part = Part { told: None, uris, refused: BTreeSet::new() };
    let mut groups = vec![new];
    let mut mute = 0;
    for _ in 0..MOST {
        let Some(group) = groups.pop() else { break };
        let uris = &part.uris | &group;
        // It has just refused all of them.
        if uris != *all {
            match open(way, &uris).await {
                Ok(told) => {
                    (part.told, part.uris) = (told, uris);
                    continue;
                }
                Err(failure) if is_refused(&failure) && !group.is_empty() => {}
                Err(Failure::Lowered(lowered::Failure::BrokenOff)) if mute < MUTE && !groups.is_empty() => {
                    mute += 1;
                    continue;
                }
                Err(failure) if part.told.is_none() => return Err(failure),
                Err(_) => break,
            }
        }
        let half = group.len() / 2;
        if half == 0 {
            way.session.note_refused_too(&group);
            part.refused.extend(group);
            continue;
        }
        let mut group: Vec<_> = group.into_iter().collect();
        let other = group.split_off(half);
        groups.extend([other, group].map(|half| half.into_iter().collect()));
    }
    Ok(part)
}
