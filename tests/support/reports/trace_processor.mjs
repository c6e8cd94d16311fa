// Perfetto's trace processor (WebAssembly) under Node: loads a trace and prints what a query finds.
//
//   node trace_processor.mjs FOLDER TRACE < QUERIES
//
// FOLDER holds engine_bundle.js and trace_processor.wasm, as Perfetto's web page does. The bundle is
// a web worker, so it gets the few globals of one. Requests and answers are TraceProcessorRpc
// messages (protos/perfetto/trace_processor/trace_processor.proto), encoded here by hand. Queries
// come as a JSON list of strings, and the rows go out as a JSON list of lists, one for each query.
import {readFileSync} from "node:fs";
import {join} from "node:path";
import vm from "node:vm";

const [folder, tracePath] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorMethod
const NULL = 1, VARINT = 2, FLOAT64 = 3, STRING = 4, BLOB = 5; // QueryResult.CellsBatch.CellType

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
const field = (number, bytes) =>
  Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
const number = (id, value) => Buffer.concat([varint(id * 8), varint(value)]);

function* fields(bytes) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n;
    for (;;) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
      shift += 7n;
    }
  };
  while (at < bytes.length) {
    const tag = Number(next());
    const id = tag >> 3;
    if ((tag & 7) === 0) yield [id, next()];
    else if ((tag & 7) === 1) yield [id, bytes.subarray(at, (at += 8))];
    else {
      const size = Number(next());
      yield [id, bytes.subarray(at, (at += size))];
    }
  }
}

function varints(bytes) { // of a packed field
  const found = [];
  let value = 0n, shift = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte > 127) continue;
    found.push(BigInt.asIntN(64, value));
    value = shift = 0n;
  }
  return found;
}

function doubles(bytes) {
  return Array.from({length: bytes.length / 8}, (_, at) => bytes.readDoubleLE(8 * at));
}

class Rows {
  columns = 0;
  cells = [];
  add(result) { // QueryResult
    for (const [id, value] of fields(result)) {
      if (id === 1) this.columns++;
      if (id === 2 && value.length) throw new Error(value.toString());
      if (id === 3) this.addBatch(value);
    }
  }
  addBatch(batch) {
    const of = {1: [], 2: [], 3: [], 4: [], 5: []};
    for (const [id, value] of fields(batch)) {
      if (id === 1) of[1].push(...varints(value));
      if (id === 2) of[2].push(...varints(value));
      if (id === 3) of[3].push(...doubles(value));
      if (id === 4) of[4].push(value);
      if (id === 5) of[5].push(...value.toString().split("\0"));
    }
    for (const type of of[1].map(Number)) {
      if (type === NULL) this.cells.push(null);
      else if (type === VARINT) this.cells.push(Number(of[2].shift()));
      else if (type === FLOAT64) this.cells.push(of[3].shift());
      else if (type === STRING) this.cells.push(of[5].shift());
      else if (type === BLOB) this.cells.push(of[4].shift().toString("hex"));
    }
  }
  get all() {
    const rows = [];
    for (let at = 0; at < this.cells.length; at += this.columns)
      rows.push(this.cells.slice(at, at + this.columns));
    return rows;
  }
}

let pending = Buffer.alloc(0);
const port = {
  postMessage(data) { // TraceProcessorRpcStream, perhaps in parts
    pending = Buffer.concat([pending, Buffer.from(data)]);
  },
};
class FileRequest { // an XMLHttpRequest that reads a file of the folder at once
  open(_method, url) {
    this.name = String(url).split("/").pop();
  }
  send() {
    const bytes = readFileSync(join(folder, this.name));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    this.status = 200;
  }
}
const silent = () => {};
const worker = {
  console: {log: silent, warn: silent, error: silent},
  setTimeout, clearTimeout, setInterval, clearInterval, TextDecoder, TextEncoder, URL,
  performance, crypto, importScripts: silent, WorkerGlobalScope: class {},
  location: {href: "file:///engine_bundle.js"}, navigator: {hardwareConcurrency: 1},
  XMLHttpRequest: FileRequest,
};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(readFileSync(join(folder, "engine_bundle.js"), "utf8"), worker);
worker.onmessage({data: port});
await new Promise((resolve) => setTimeout(resolve, 0)); // what the start has promised is done

let sequence = 0;
function* ask(method, extra) { // one TraceProcessorRpc; yields the fields of its answers
  pending = Buffer.alloc(0);
  const bytes = field(1, Buffer.concat([number(1, sequence++), number(2, method), extra]));
  const request = vm.runInContext(`new Uint8Array(${bytes.length})`, worker);
  request.set(bytes);
  port.onmessage({data: request});
  for (const [, answer] of fields(pending)) yield* checked(fields(answer));
}
function* checked(answer) {
  for (const [id, value] of answer) {
    if (id === 5) throw new Error(value.toString()); // fatal_error
    if (id === 201) { // append_result
      for (const [key, text] of fields(value)) if (key === 2) throw new Error(text.toString());
    }
    yield [id, value];
  }
}
[...ask(APPEND, field(101, readFileSync(tracePath)))];
[...ask(FINALIZE, Buffer.alloc(0))];
const found = [];
for (const sql of JSON.parse(readFileSync(0, "utf8"))) {
  const rows = new Rows();
  for (const [id, value] of ask(QUERY, field(103, field(1, Buffer.from(sql))))) {
    if (id === 203) rows.add(value); // query_result
  }
  found.push(rows.all);
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
