// A relay of the reference's shape on node:http and ws: what one writes first, in a page.
//
// Ingest with envelope checks, a replay buffer per session, attr-match by a walk over all subscribers, each of which
// lowers the event to its ceiling and writes it out; the load has no ceilings, so here that is its JSON text, made for each.
// With SHARED_TEXT=1 the text and the SSE block are made once per event and shared: the first thing one would tune.
// Speaks enough of the contract for aep-load: POST /events, GET /stream, /socket with hello and subscribe, resume by
// position.

import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const BUFFER = 10_000;
const SESSIONS_MAX = 500;
const SHARED_TEXT = process.env.SHARED_TEXT === '1';
const REQUIRED = ['id', 'type', 'time', 'source', 'agent', 'session'];

/** session → { events, ids: Set } ; insertion order is recency. */
const sessions = new Map();
/** { filter, deliver } */
const subscribers = new Set();

function invalid(ev) {
  if (ev === null || typeof ev !== 'object' || Array.isArray(ev)) return 'not an object';
  if (ev.aep !== '0.1') return 'aep';
  for (const name of REQUIRED) if (typeof ev[name] !== 'string' || ev[name] === '') return name;
  if (!/^[a-z]+(\.[a-z0-9_]+)+$/.test(ev.type) && !/^x\.[a-z0-9_-]+(\.[a-z0-9_]+){2,}$/.test(ev.type)) return 'type';
  if (Number.isNaN(Date.parse(ev.time))) return 'time';
  if (!Number.isSafeInteger(ev.seq) || ev.seq < 0) return 'seq';
  return null;
}

function matchOne(wanted, value) {
  if (typeof wanted === 'string' && wanted.endsWith('.*')) return String(value).startsWith(wanted.slice(0, -1));
  return wanted === value;
}

function matches(filter, ev) {
  for (const [name, wanted] of Object.entries(filter)) {
    const value = ev[name];
    if (value === undefined) return false;
    if (Array.isArray(wanted) ? !wanted.some((one) => matchOne(one, value)) : !matchOne(wanted, value)) return false;
  }
  return true;
}

const before = (a, b) => (a.epoch ?? 0) - (b.epoch ?? 0) || a.seq - b.seq;

function keep(ev) {
  const held = sessions.get(ev.session) ?? { events: [], ids: new Set() };
  sessions.delete(ev.session);
  sessions.set(ev.session, held);
  if (sessions.size > SESSIONS_MAX) sessions.delete(sessions.keys().next().value);
  const id = `${ev.source}\n${ev.id}`;
  if (held.ids.has(id)) return;
  held.ids.add(id);
  let place = held.events.length;
  while (place > 0 && before(held.events[place - 1], ev) > 0) place--;
  held.events.splice(place, 0, ev);
  if (held.events.length > BUFFER) {
    const [gone] = held.events.splice(0, 1);
    held.ids.delete(`${gone.source}\n${gone.id}`);
  }
}

/** A form of an event: made for this consumer alone, or once and kept beside the event's other forms. */
function form(shared, name, make) {
  return SHARED_TEXT ? (shared[name] ??= make()) : make();
}
const json = (ev, shared) => form(shared, 'json', () => JSON.stringify(ev));
const block = (ev, shared) => form(
  shared, 'sse', () => `id: ${ev.session}:${ev.epoch ?? 0}:${ev.seq}\nevent: ${ev.type}\ndata: ${json(ev, shared)}\n\n`);

function ingest(ev) {
  keep(ev);
  const shared = {};
  for (const subscriber of subscribers) if (matches(subscriber.filter, ev)) subscriber.deliver(ev, shared);
}

function replay(from, filter, deliver) {
  for (const { session, epoch = 0, seq } of from) {
    for (const ev of sessions.get(session)?.events ?? []) {
      if (before(ev, { epoch, seq }) > 0 && matches(filter, ev)) deliver(ev, {});
    }
  }
}

function answer(res, status, body) {
  const text = JSON.stringify(body);
  res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
  res.end(text);
}

function onEvents(req, res) {
  const chunks = [];
  req.on('data', (chunk) => chunks.push(chunk));
  req.on('end', () => {
    const body = Buffer.concat(chunks).toString('utf8');
    const lines = req.headers['content-type'] === 'application/x-ndjson' ? body.split('\n').filter(Boolean) : [body];
    const events = [];
    for (const text of lines) {
      let ev;
      try { ev = JSON.parse(text); } catch { return answer(res, 400, { error: 'invalid-json' }); }
      const fault = invalid(ev);
      if (fault) return answer(res, 400, { error: 'invalid-event', detail: fault });
      events.push(ev);
    }
    for (const ev of events) ingest(ev);
    answer(res, 202, { accepted: events.length });
  });
}

function onStream(req, res, url) {
  const filter = JSON.parse(url.searchParams.get('filter') || '{}');
  const from = JSON.parse(url.searchParams.get('from') || '[]');
  res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache, no-transform' });
  res.write(': open\n\n');
  const deliver = (ev, shared) => res.write(block(ev, shared));
  replay(from, filter, deliver);
  const subscriber = { filter, deliver };
  subscribers.add(subscriber);
  res.on('close', () => subscribers.delete(subscriber));
}

const server = createServer((req, res) => {
  const url = new URL(req.url, 'http://localhost');
  if (url.pathname === '/events' && req.method === 'POST') return onEvents(req, res);
  if (url.pathname === '/stream') return onStream(req, res, url);
  if (url.pathname === '/healthz') return answer(res, 200, { ok: true });
  if (url.pathname === '/.well-known/aep') return answer(res, 200, { aep: ['0.1'], role: 'collector' });
  answer(res, 404, { error: 'not-found' });
});

new WebSocketServer({ server, path: '/socket', perMessageDeflate: false }).on('connection', (ws) => {
  const own = [];
  ws.on('message', (data) => {
    const text = data.toString('utf8');
    let message;
    try { message = JSON.parse(text); } catch { return ws.close(1008); }
    const { type, id, filter = {}, from = [] } = message;
    if (type === 'hello') ws.send(JSON.stringify({ type: 'hello', versions: ['0.1'], role: 'both' }));
    else if (type === 'ping') ws.send(JSON.stringify({ type: 'pong', t: message.t }));
    else if (type === 'subscribe') {
      const deliver = (ev, shared) => ws.send(json(ev, shared));
      ws.send(JSON.stringify({ type: 'subscribed', id }));
      replay(from, filter, deliver);
      const subscriber = { filter, deliver };
      own.push(subscriber);
      subscribers.add(subscriber);
    } else if (!invalid(message)) ingest(message);
  });
  ws.on('close', () => own.forEach((subscriber) => subscribers.delete(subscriber)));
  ws.on('error', () => {});
});

server.keepAliveTimeout = 75_000;
server.requestTimeout = 0;
server.listen({ port: Number(process.env.PORT ?? 8787), host: '127.0.0.1', backlog: 4096 }, () => {
  console.log(`node-relay on http://127.0.0.1:${server.address().port}`);
});
