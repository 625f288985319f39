//! `longshore crds`.

/// Prints every CustomResourceDefinition.
pub(super) fn run() -> anyhow::Result<()> {
    super::print(&longshore_crds::manifest::documents()?)
}
