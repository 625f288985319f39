//! Name servers, which are behind, and say the same for a while.

use std::net::IpAddr;

use super::random::Random;

pub(super) struct NameServers {
    /// What they would say if they were not behind: from when on which addresses.
    listed: Vec<(u64, Vec<IpAddr>)>,
    /// How far they are behind at most.
    lag: u64,
    /// What each of them said last, and when; a pod asks always the same one.
    said: [Option<(u64, Vec<IpAddr>)>; 2],
    /// For how long they say the same.
    cache: u64,
    pub(super) are_down: bool,
}

impl NameServers {
    pub(super) fn new(random: &mut Random) -> Self {
        let lag = [1, 500, 3_000, 8_000][random.between(0, 4) as usize];
        let cache = [0, 5_000, 30_000][random.between(0, 3) as usize];
        Self { listed: vec![(0, Vec::new())], lag, said: [None, None], cache, are_down: false }
    }

    /// These are there from now on.
    pub(super) fn list(&mut self, now: u64, addresses: Vec<IpAddr>) {
        self.listed.push((now, addresses));
    }

    /// Whether each answer is a new one.
    pub(super) fn keep_nothing(&self) -> bool {
        self.cache == 0
    }

    /// What a pod hears, if anything.
    pub(super) fn look_up(&mut self, pod: usize, now: u64, random: &mut Random) -> Option<Vec<IpAddr>> {
        if self.are_down {
            return None;
        }
        let server = pod % self.said.len();
        if let Some((at, said)) = &self.said[server]
            && now - at < self.cache
        {
            return Some(said.clone());
        }
        let asked = now.saturating_sub(random.between(0, self.lag));
        let (_, listed) = self.listed.iter().rev().find(|(from, _)| *from <= asked)?;
        self.said[server] = Some((now, listed.clone()));
        Some(listed.clone())
    }
}
