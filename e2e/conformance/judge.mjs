// The conformance suite's own command, as often as it is wanted: to start it anew for every server costs more than what
// it then does. Each line of standard input is the words of a command line, as JSON, and each is answered by a line when
// that command has ended. What the suite would print is dropped; what it found is in the folder that it was given.
//
// suite.mjs is the suite as it was published, but for its last statement, which would read this process's own command
// line: see install.sh.
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { program } from "./suite.mjs";

console.log = console.error = console.warn = () => {};

const end = process.exit.bind(process);
// The suite ends its process when it is done, with a failure that its own code does not take for one of the server's.
process.exit = (code) => {
  throw new Error(`ended with ${code}`);
};

// What becomes of connections after a command has ended is nobody's concern.
process.on("unhandledRejection", () => {});
process.on("uncaughtException", () => {});

for await (const line of createInterface({ input: process.stdin })) {
  let said = "";
  try {
    await program.parseAsync(JSON.parse(line), { from: "user" });
  } catch (error) {
    said = String(error);
  }
  writeSync(1, `${JSON.stringify(said)}\n`);
}
// Whatever is still open.
end(0);
