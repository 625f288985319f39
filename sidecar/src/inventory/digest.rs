//! The digest of tool definitions: the same for the same definitions, in whatever order the tools or their members
//! come.

use serde_json::value::RawValue;

use crate::configuration::digest;

/// The digest of a list of tools, each with the members of every object in order, and without white space.
pub(super) fn of_tools(tools: &[&RawValue]) -> String {
    let mut texts: Vec<&str> = tools.iter().map(|tool| tool.get()).collect();
    texts.sort_unstable();
    digest(texts.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use longshore_mcp::listing;
    use longshore_mcp::method::List;

    use super::*;
    use crate::inventory::raw;

    #[test]
    fn order_does_not_matter_and_content_does() {
        let of = |tools: [&str; 2]| {
            let list = format!(r#"{{"tools":[{}]}}"#, tools.join(","));
            of_tools(&raw(&listing::page(&list, List::Tools).unwrap().entries))
        };
        let (a, b) = (r#"{"name":"a","x":[1,{"p":1,"q":2}]}"#, r#"{"name":"b"}"#);
        let digest = of([a, b]);
        assert_eq!(digest, of([b, r#"{ "x":[1, {"q":2,"p":1}],"name":"\u0061" }"#]));
        assert_ne!(digest, of([a, r#"{"name":"b","description":""}"#]));
        // Other releases say the same of the same tools.
        assert_eq!(digest, "sha256:61d3e5d71687bae157b982e47bf6c8ba08df3d4ae83b240515be54cb3fa53ca1");
        assert_ne!(digest, of([r#"{"name":"a","x":[{"p":1,"q":2},1]}"#, b]));
    }
}
