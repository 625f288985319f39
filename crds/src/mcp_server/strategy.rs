//! `spec.strategy`: how a new version takes the place of the one before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a new version takes the place of the one before. The names are a Deployment's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Strategy {
    /// `RollingUpdate`: the one before goes when the new one has served for ten seconds. `Recreate`: all its pods end first,
    /// for a volume that one pod alone can have; until the new one serves nobody is served.
    #[serde(default, rename = "type")]
    pub type_: StrategyType,
}

/// Which of two versions goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// The one before goes when the new one has served for ten seconds: nothing is lost.
    #[default]
    RollingUpdate,
    /// All pods of the one before end first. One that fails leaves nothing.
    Recreate,
}
