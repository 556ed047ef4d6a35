// Appends, reads and meets a 404, with nothing but the types that openapi-typescript made. Where an error is
// expected, the compiler complains if there is none: the types are not so wide that everything passes.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[]; exit(code: number): never };

const api = createClient<paths>({ baseUrl: process.argv[2] as string });
const topic = "of-typescript";

const { data: appended } = await api.POST("/v0/topics/{topic}", {
  params: { path: { topic } },
  body: { records: [{ data: { sku: "AEROPRESS" }, tag: "user:7", meta: { trace: "abc", attempt: 1 } }, { data: 2 }] },
});
if (!appended) throw new Error("not appended");
const last: number = appended.last_seq;
// @ts-expect-error: it is a number
const wrong: string = appended.last_seq;

await api.POST("/v0/topics/{topic}", {
  params: { path: { topic } },
  // @ts-expect-error: the name of the field is wrong, and the answer says so
  body: { recods: [] },
}).then(({ error }) => {
  const code: "invalid_request" | string | undefined = error?.error.code;
  if (code !== "invalid_request") throw new Error(`expected another error than ${code}`);
});

// Every field of a body that the server does not need may be left out.
const { data: page } = await api.POST("/v0/topics/{topic}/diff", { params: { path: { topic } }, body: {} });
if (!page) throw new Error("not read");
const first: components["schemas"]["Record"] | undefined = page.records[0];
const trace: unknown = first?.meta?.["trace"];

const { data: listed } = await api.GET("/v0/topics/{topic}/records", {
  params: { path: { topic }, query: { last: 1, include_meta: true } },
});

const { error, response } = await api.POST("/v0/topics/{topic}/diff", { params: { path: { topic: "none" } }, body: {} });
if (!error || error.error.code !== "topic_not_found") throw new Error("no 404");
const missing: string | undefined = error.error.detail?.topic;
// @ts-expect-error: only this error has these details, and they have no such field
const unknown: unknown = error.error.detail?.elsewhere;

const filter: components["schemas"]["RouterState"]["filter"] = ["tag", "Eq", "user:7"];
// @ts-expect-error: there is no such comparison
const none: components["schemas"]["RouterState"]["filter"] = ["tag", "Like", "user:7"];

console.log(JSON.stringify({ last, trace, listed: listed?.records.length, missing, status: response.status }));
void [wrong, unknown, filter, none];
