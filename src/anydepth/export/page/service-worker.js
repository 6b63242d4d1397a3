// Keeps the page for when there is no network. The model's file is kept by worker.js.
const CACHE = `anydepth-page ${registration.scope}`;  // other sites may have the same origin
const FILES = ["./", "index.html", "page.css", "page.js", "worker.js", "core.js", "sentences.js", "anydepth.wasm", "model.json", "manifest.webmanifest", "icon.svg"];

addEventListener("install", event => {
  skipWaiting();
  event.waitUntil(caches.open(CACHE).then(cache => cache.addAll(FILES)));
});

addEventListener("activate", event => event.waitUntil(clients.claim()));

// The network first, so that a new version is seen at once.
addEventListener("fetch", event => {
  const { request } = event, address = new URL(request.url);
  const isOurs = FILES.some(name => new URL(name, registration.scope).pathname === address.pathname);
  if (request.method !== "GET" || address.origin !== location.origin || !isOurs) return;
  event.respondWith(newest(request));
});

async function newest(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}
