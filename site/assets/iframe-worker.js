/* Search in pages that were opened from a folder: there a browser starts no workers, and a hidden frame does the work of one. */
if (location.protocol === "file:") {
  const load = (frame, address) => new Promise((loaded, failed) => {
    const script = frame.document.createElement("script");
    Object.assign(script, { src: address, onload: loaded, onerror: () => failed(new Error(`${address} cannot be read`)) });
    frame.document.head.append(script);
  });
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const place = Object.assign(document.createElement("iframe"), { hidden: true, title: "search" });
      document.body.append(place);
      this.frame = place.contentWindow;
      this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame.importScripts = (...addresses) => addresses.reduce((before, each) => before.then(() => load(this.frame, each)), Promise.resolve());
      this.ready = load(this.frame, new URL(address, location.href).href);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
