//! What a proxy makes up at random, and always the same here.

use longshore_mcp::rounds::Mint;

/// Every question has the id `7`, every visit is called `v`.
pub(crate) struct Minted;

impl Mint for Minted {
    fn id(&mut self) -> String {
        "7".to_owned()
    }

    fn visit(&mut self) -> String {
        "v".to_owned()
    }
}
