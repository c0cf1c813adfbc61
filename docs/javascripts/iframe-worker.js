// The search runs in a Worker, and browsers start none for a page that was opened from a disk: there a hidden frame
// does its work. A name with "iframe-worker" in it keeps the theme from fetching such a script from another server.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      const script = scope.document.createElement("script");
      scope.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.onmessage?.({ data: copy }));
      };
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      script.onerror = (event) => this.onerror?.(event);
      script.src = new URL(url, location.href);
      scope.document.body.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data); // Both sides go on with what they have sent.
      this.loaded.then(() => this.frame.contentWindow?.onmessage?.({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
