// Asks for the key of the service, where it has accounts.

import { get, key } from "./api.js";
import { make, service } from "./dom.js";

/** Make what a key is typed into; `used` is called once the service knows it. */
export function keyForm(used, ...buttons) {
  const fault = make("p", { class: "fault", role: "alert", id: "key-fault" });
  const secret = make("input", {
    id: "secret", type: "password", autocomplete: "off", required: true, "aria-describedby": "key-fault",
  });
  const form = make("form", {},
    make("label", { for: "secret" }, "API key, which this tab keeps until it is closed"), secret, fault,
    make("div", { class: "buttons" }, ...buttons, make("button", { class: "main" }, "Use this key")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    key.set(secret.value.trim());
    try {
      await get("/v1/limits");
      used();
    } catch (error) {
      key.forget();
      fault.textContent = error.message;
    }
  });
  return form;
}

/** Ask for a key in a dialog; return whether there is one now. */
export function askForKey(why = "") {
  return new Promise((resolve) => {
    const dialog = make("dialog", { class: "card", "aria-label": "Key" }, make("p", {}, why));
    const close = () => dialog.close();
    dialog.append(keyForm(close, make("button", { type: "button", onclick: close }, "Cancel")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(Boolean(key.get()));
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Return whether requests can be sent: ask for a key where one is needed and missing. */
export const hasKey = async () =>
  !service.needs_key || Boolean(key.get()) || askForKey("This service answers those who have a key.");

/** Forget a key that the service has refused, and ask for another. */
export async function replaceKey(error) {
  key.forget();
  return askForKey(error.message);
}
